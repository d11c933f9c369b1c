package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestServeWithoutRedis checks that a server starts and decides without Redis, uses Redis when it becomes available, and does not block
// callers when Redis hangs.
func TestServeWithoutRedis(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	redis := testenv.Start(t, testenv.Redis)
	redis.Kill()
	_, file := configure(t, "redis: {address: redis://"+redis.Addr()+"}\n", fivePerHour)
	r := serve(t, "--config", file)
	if a := r.check(`"ip": "192.0.2.1"`); !a.Allowed || a.Path != "local" {
		t.Errorf("without Redis: %+v", a)
	}
	r.waitForLog("redis unavailable")
	status, health := r.ready()
	if status != http.StatusOK || health.Status != "degraded" || health.Redis.Status != "unavailable" ||
		health.Redis.Address != "redis://"+redis.Addr() || health.Rules.Version == "" {
		t.Errorf("%d: %+v", status, health)
	}
	redis.Restart(t)
	r.waitForLog(redisConnected)
	if a := r.checkStored(); !a.Allowed || a.Remaining != 4 {
		t.Errorf("with Redis: %+v", a)
	}
	if status, health := r.ready(); status != http.StatusOK || health.Status != "ok" || health.Redis.Status != "ok" {
		t.Errorf("%d: %+v", status, health)
	}
	redis.Pause()
	defer redis.Resume()
	var slow []time.Duration
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		began := time.Now()
		a := r.check(`"ip": "192.0.2.2"`)
		if a.Path != "local" {
			t.Fatalf("%+v", a)
		}
		if elapsed := time.Since(began); elapsed > 500*time.Millisecond {
			slow = append(slow, elapsed)
		}
	}
	if len(slow) > 1 { // the machine itself may stall once
		t.Errorf("a hanging Redis blocked callers for %v", slow)
	}
	if status, health := r.ready(); status != http.StatusOK || health.Status != "degraded" || health.Redis.ShardsUnavailable != 1 {
		t.Errorf("%d: %+v", status, health)
	}
}

// TestServeReloads changes the rules of a running server. Invalid rules change nothing, and a new server starts from last_good_file.
func TestServeReloads(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	dir, file := configure(t, "last_good_file: kept\nredis: {address: redis://"+redis.Addr()+"}\n", fivePerHour)
	rules := filepath.Join(dir, "rules.yaml")
	r := serve(t, "--config", file)
	r.waitForLog(redisConnected)
	first := r.check(`"ip": "192.0.2.1"`)
	writeFile(t, rules, strings.Replace(fivePerHour, "5/hour", "9/hour", 1))
	var second checkResponse
	eventually(t, "new rules", func() bool {
		second = r.check(`"ip": "192.0.2.9"`)
		return second.Version != first.Version
	})
	writeFile(t, rules, "rules: nonsense")
	r.waitForLog(`"event":"rejected"`)
	status, health := r.ready()
	if a := r.checkStored(); a.Version != second.Version || a.Remaining != 8 {
		t.Errorf("invalid rules: %+v", a)
	}
	if status != http.StatusOK || health.Status != "degraded" || !strings.Contains(health.Rules.Problem, "rules.yaml:1") {
		t.Errorf("%d: %+v", status, health)
	}
	_, metrics := send(t, "GET", "http://"+r.addressOf("ops")+"/metrics", "")
	for _, want := range []string{"headgate_rules_last_load_successful 0", `headgate_rules_info{version="` + second.Version + `"} 1`} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("%s is missing in\n%s", want, metrics)
		}
	}
	again := serve(t, "--config", file)
	if a := again.check(`"ip": "192.0.2.3"`); a.Version != second.Version {
		t.Errorf("from last_good_file: %+v", a)
	}
	again.waitForLog("started_from_last_good")
}

// TestServeConfig checks that the config's mode caps the rules, and that its settings of headers and refunds apply.
func TestServeConfig(t *testing.T) {
	t.Parallel()
	rules := "rules: [{id: all, by: [ip], limit: 1/hour, expose: true}]\n"
	_, file := configure(t, "mode: shadow\nheaders: draft\n", rules)
	r := serve(t, "--dev", "--config", file)
	for range 3 {
		if a := r.check(`"ip": "192.0.2.1"`); !a.Allowed {
			t.Errorf("%+v", a)
		}
	}
	res, err := http.Get("http://" + r.addressOf("http") + "/v1/authorize")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.Header.Get("RateLimit") == "" || res.Header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("%v", res.Header)
	}
	for listener, url := range map[string]string{"http": "/v1/refund", "admin": "/v1/explain"} {
		status, body := send(t, "POST", "http://"+r.addressOf(listener)+url, `{"attributes": {"ip": "192.0.2.1"}}`)
		if want := map[string]int{"http": http.StatusForbidden, "admin": http.StatusOK}[listener]; status != want {
			t.Errorf("%s: %d: %s", url, status, body)
		}
	}
	r.waitForLog("mode is shadow")
}

// TestServeMetrics checks that Prometheus can parse the metrics, and that they cover both listeners.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	_, file := configure(t, "", "rules: [{id: all, by: [ip], limit: 1/hour}]\n")
	r := serve(t, "--dev", "--config", file)
	r.check(`"ip": "192.0.2.1"`)
	conn, err := grpc.NewClient(r.addressOf("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d, err := checkv1.NewCheckServiceClient(conn).Check(t.Context(),
		&checkv1.CheckRequest{Attributes: map[string]string{"ip": "192.0.2.1"}})
	if err != nil || d.GetAllowed() {
		t.Errorf("over gRPC: %v, %v", d, err)
	}
	if err := testutil.ScrapeAndCompare("http://"+r.addressOf("ops")+"/metrics", strings.NewReader(`
# HELP headgate_decisions_total Decisions, by call, result, path and tier of the request.
# TYPE headgate_decisions_total counter
headgate_decisions_total{call="check",path="store",result="allowed",tier=""} 1
headgate_decisions_total{call="check",path="store",result="denied",tier=""} 1
`), "headgate_decisions_total"); err != nil {
		t.Error(err)
	}
	_, body := send(t, "GET", "http://"+r.addressOf("ops")+"/metrics", "")
	for _, name := range []string{
		"go_goroutines", "process_open_fds", "headgate_store_up", `headgate_connections{listener="grpc"}`,
	} {
		if !strings.Contains(body, "\n"+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestServeDrainsOnStop checks that a stopping server announces it immediately, finishes requests in flight and deregisters.
func TestServeDrainsOnStop(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	_, file := configure(t, "redis: {address: redis://"+redis.Addr()+"}\n", fivePerHour)
	r := serve(t, "--config", file)
	address := r.addressOf("http")
	r.waitForLog(redisConnected)
	conn, err := grpc.NewClient(r.addressOf("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(),
		&healthv1.HealthCheckRequest{Service: "headgate.check.v1.CheckService"})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := watch.Recv(); err != nil || state.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Fatal(state, err)
	}
	stream, err := checkv1.NewCheckServiceClient(conn).CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// A request of which only a part has been sent.
	late, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	body := `{"attributes": {"ip": "192.0.2.1"}}`
	write := func(format string, args ...any) {
		if _, err := fmt.Fprintf(late, format, args...); err != nil {
			t.Fatal(err)
		}
	}
	write("POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:10])

	r.stop()
	if state, err := watch.Recv(); err != nil || state.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Error(state, err)
	}
	if message, err := stream.Recv(); err != nil || !message.GetDraining() {
		t.Error(message, err)
	}
	if status, health := r.ready(); status != http.StatusServiceUnavailable || health.Status != "draining" {
		t.Errorf("%d: %+v", status, health)
	}
	r.check(`"ip": "192.0.2.2"`) // for load balancers that have not noticed
	res, err := (&http.Client{Transport: &http.Transport{}}).Get("http://" + address + "/v1/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); !res.Close {
		t.Error("a keep-alive connection is not closed")
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	conn.Close()
	eventually(t, "the listener to close", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	write("%s", body[10:])
	res, err = http.ReadResponse(bufio.NewReader(late), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Error(res.Status)
	}
	<-r.done
	if line, ok := r.log.find(func(l logLine) bool { return l.Msg == "stopped" }); !ok || line.TimedOut || line.Duration == "" {
		t.Errorf("%+v\n%s", line, r.log.String())
	}
	// The node has deregistered, so that the others do not reserve a share for it.
	if n := redis.Must(t, "KEYS", "*nodes*"); strings.Contains(fmt.Sprint(n), "nodes") {
		if members := redis.Must(t, "ZCARD", fmt.Sprint(n.([]any)[0])); members != int64(0) {
			t.Errorf("%v nodes are registered", members)
		}
	}
}

// TestServeBinary runs the real binary with --dev and stops it with SIGTERM.
func TestServeBinary(t *testing.T) {
	t.Parallel()
	_, file := configure(t, "", fivePerHour)
	binary := testenv.BuildHeadgate(t)
	r := &testServer{t: t, done: make(chan struct{})}
	cmd := exec.Command(binary, "serve", "--dev", "--config", file)
	cmd.Stdout, cmd.Stderr = &r.out, &r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-r.done
	})
	var codes []string
	for range 6 {
		status, _ := send(t, "GET", "http://"+r.addressOf("http")+"/v1/authorize", "")
		codes = append(codes, strconv.Itoa(status))
	}
	if got := strings.Join(codes, " "); got != "200 200 200 200 200 429" {
		t.Error(got)
	}
	if !strings.Contains(r.out.String(), "http://"+r.addressOf("http")+"/v1/authorize; done\n") {
		t.Error(r.out.String())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if r.err != nil || !strings.Contains(r.log.String(), `"msg":"stopped"`) {
		t.Errorf("%v\n%s", r.err, r.log.String())
	}
}
