package main

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestServeSlots checks that servers share a concurrency limit, and that a server that stops releases the slots of its callers at once:
// their lease is too long to wait for.
func TestServeSlots(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	servers := make([]*testServer, 2)
	for i := range servers {
		_, file := configure(t, "redis: {address: redis://"+redis.Addr()+"}\n",
			"rules: [{id: reports, by: [tenant], limit: {concurrent: 2, lease: 10m}, on_store_failure: deny}]\n")
		servers[i] = serve(t, "--config", file)
		servers[i].waitForLog(redisConnected)
	}
	post := func(r *testServer, path, body string) (response struct {
		Allowed, Found bool
		Path, Slots    string
		Lease          float64
	},
	) {
		t.Helper()
		if _, text := send(t, "POST", "http://"+r.addressOf("http")+path, body); json.Unmarshal([]byte(text), &response) != nil {
			t.Fatalf("%s: %s", path, text)
		}
		return response
	}
	begin := func(r *testServer, want bool) (slots string) {
		t.Helper()
		eventually(t, "a decision by Redis", func() bool {
			a := post(r, "/v1/check", `{"attributes": {"tenant": "acme"}, "begin": true}`)
			slots = a.Slots
			return (a.Path == "store" || a.Path == "lease") && a.Allowed == want && (a.Slots != "") == want && (a.Lease == 600) == want
		})
		return slots
	}
	begin(servers[0], true)
	slots := begin(servers[0], true)
	begin(servers[1], false)
	if post(servers[1], "/v1/release", `{"slots": "`+slots+`"}`).Found {
		t.Error("a server releases the slots of another one")
	}
	begin(servers[1], false)
	if !post(servers[0], "/v1/release", `{"slots": "`+slots+`"}`).Found {
		t.Error("the slots are not found")
	}
	other := begin(servers[1], true)
	begin(servers[1], false)
	conn, err := grpc.NewClient(servers[1].addressOf("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	token, err := base64.RawURLEncoding.DecodeString(other)
	if err != nil {
		t.Fatal(err)
	}
	found, err := checkv1.NewCheckServiceClient(conn).Release(t.Context(), &checkv1.ReleaseRequest{Releases: []*checkv1.SlotRelease{{Slots: token}}})
	if err != nil || !found.GetFound()[0] {
		t.Errorf("slots of HTTP are not released by gRPC: %v, %v", found, err)
	}
	begin(servers[1], true)
	begin(servers[1], false)
	servers[0].stop()
	<-servers[0].done
	begin(servers[1], true)
	begin(servers[1], false)
}
