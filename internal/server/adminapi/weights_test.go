package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/region"
)

// fakeWeights are the weights of two regions.
type fakeWeights struct{ err error }

func (f *fakeWeights) Change(context.Context, map[string]int64, []string) (region.WeightsState, error) {
	return f.State(), f.err
}

func (*fakeWeights) State() region.WeightsState {
	at := time.Unix(2_000_000_000, 0).UTC()
	return region.WeightsState{Serial: 1, Now: at, Since: at, Regions: []region.MemberWeight{{Name: "eu", Weight: 2, Config: 1, Acknowledged: true}, {Name: "us", Dead: true}}}
}

// TestChangeWeights checks the statuses and messages of changes that fail.
func TestChangeWeights(t *testing.T) {
	t.Parallel()
	w, _ := sharedWorld(t)
	post := func(body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, WeightsPath, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return w.hold(t, r, string(Admin)+".")
	}
	if status, detail := post(`{"weights": {"eu": 1}}`); status != http.StatusNotImplemented || !strings.Contains(detail, "no other regions") {
		t.Errorf("without regions: %d %s", status, detail)
	}
	fake := &fakeWeights{}
	w.api.Weights = fake
	for _, c := range []struct {
		err    error
		body   string
		status int
		detail string
	}{
		{nil, `{}`, http.StatusUnprocessableEntity, "none given"},
		{nil, `{"weights": {"us": 1, "eu": 0}, "dead": ["eu", "us"]}`, http.StatusUnprocessableEntity, `region "us" has the weight 1 in weights`},
		{nil, `{"weights": {"eu": 1.5}}`, http.StatusBadRequest, "invalid body: weights: number 1.5 given, must be an integer of 64 bits: send"},
		{nil, `{"dead": "eu"}`, http.StatusBadRequest, "invalid body: dead: string given, must be an array: send"},
		{nil, `{"reason": {}}`, http.StatusBadRequest, "invalid body: reason: object given, must be a string: send"},
		{nil, `[]`, http.StatusBadRequest, "invalid body: the whole body: array given, must be an object: send"},
		{nil, `{"weight": {"eu": 1}}`, http.StatusBadRequest, "weights"},
		{fmt.Errorf("%w: eu", region.ErrWeights), `{"weights": {"eu": 1}}`, http.StatusUnprocessableEntity, "invalid weights: eu"},
		{fmt.Errorf("%w: us", region.ErrNoResponse), `{"weights": {"eu": 1}}`, http.StatusConflict, "cannot be read: us"},
		{errors.New("broken"), `{"weights": {"eu": 1}}`, http.StatusServiceUnavailable, "broken"},
		{nil, `{"dead": ["us"], "reason": "burnt down"}`, http.StatusOK, "calendar month"},
	} {
		fake.err = c.err
		if status, detail := post(c.body); status != c.status || !strings.Contains(detail, c.detail) {
			t.Errorf("%s: %d %s; want %d and %q", c.body, status, detail, c.status, c.detail)
		}
	}
}
