package adminapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/memstore"
)

// beginOne begins a request that never ends, and returns its holder.
func beginOne(t *testing.T, l *headgate.Limiter, tenant string) string {
	t.Helper()
	d, err := l.Begin(t.Context(), headgate.Request{Attributes: headgate.Attributes{"tenant": tenant}, Rule: "slots"})
	if err != nil || !d.Holds() {
		t.Fatalf("holds %t, %v", d.Holds(), err)
	}
	holders, err := l.Holders(t.Context(), &d.Limits[len(d.Limits)-1])
	if err != nil || len(holders) == 0 {
		t.Fatalf("%+v, %v", holders, err)
	}
	return fmt.Sprintf("%016x", holders[0].ID)
}

// namedStore has the name of a node for all holders.
type namedStore struct {
	*memstore.Store
	node string
}

func (s *namedStore) Holders(ctx context.Context, subject headgate.Subject, counter headgate.Counter) ([]headgate.Holder, error) {
	all, err := s.Store.Holders(ctx, subject, counter)
	for i := range all {
		all[i].Node = s.node
	}
	return all, err
}

// TestRelease releases units of this node, of another one, and of one that is gone.
func TestRelease(t *testing.T) {
	t.Parallel()
	store := &namedStore{memstore.New(memstore.Options{}), ""}
	rules := []headgate.Rule{
		{ID: "slots", By: []string{"tenant"}, Limits: map[string]headgate.Limit{"a": headgate.PerHour(9), "b": headgate.Concurrent(9)}},
		{ID: "quota", By: []string{"tenant"}, Limit: headgate.PerHour(9)},
	}
	node := func() *headgate.Limiter {
		l, err := headgate.New(store, rules...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	own, other := node(), node()
	a, _ := New(own, Options{Tokens: fakeAuthority{}, Log: slog.New(slog.DiscardHandler)}).(*api)
	release := func(rule, holder string) string {
		t.Helper()
		body := fmt.Sprintf(`{"subject": {"tenant": "acme"}, "holder": %q}`, holder)
		status, detail := send(a, httptest.NewRequest(http.MethodPost, RulesPath+"/"+rule+"/release", strings.NewReader(body)), editor)
		return fmt.Sprint(status, " ", strings.TrimSpace(detail))
	}
	expect := func(got, want string) {
		t.Helper()
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	first := beginOne(t, own, "acme")
	beginOne(t, own, "acme")
	settle := func(l *headgate.Limiter) {
		t.Helper()
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	expect(release("slots", first), `200 {"units":2,"node":""}`)
	settle(own)
	expect(release("quota", first), `422 rule "quota": has no concurrency limit`)
	expect(release("slots", "x"), `422 holder "x": must be 16 hexadecimal digits`)
	expect(release("none", first), `404 rule "none": not in force`)

	second := beginOne(t, other, "acme")
	store.node = "api-2"
	expect(release("slots", second), "409 node api-2 did not release the units")
	a.ReleaseOwn = func(context.Context, ReleaseQuery) (ReleaseResult, fanout.Coverage, error) {
		return ReleaseResult{}, fanout.Coverage{}, errors.New("the bus failed")
	}
	expect(release("slots", second), "503 the bus failed")
	a.ReleaseOwn = func(_ context.Context, q ReleaseQuery) (ReleaseResult, fanout.Coverage, error) {
		return MergeReleases(q, []ReleaseResult{ReleaseOwn(own)(q), ReleaseOwn(other)(q)}), fanout.Coverage{}, nil
	}
	expect(release("slots", second), `200 {"units":1,"node":"api-2"}`)

	settle(other)
	third := beginOne(t, node(), "acme")
	store.node = ""
	expect(release("slots", third), `200 {"units":1,"node":""}`)
	expect(release("slots", third), "409 holder "+third+" has no units")
}
