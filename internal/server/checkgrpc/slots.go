package checkgrpc

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/protofields"
	"github.com/headgate/headgate/internal/server/check"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// releaseAll releases the slots of requests that have ended.
func (s *Service) releaseAll(_ context.Context, requests *list) (*checkv1.ReleaseResponse, error) {
	if err := requests.validate("releases", check.MaxBatch, ""); err != nil {
		return nil, err
	}
	response := &checkv1.ReleaseResponse{}
	for data := range requests.items() { //nolint:contextcheck // releases do not belong to a request
		found, err := release(s.options.Slots, data)
		if err != nil {
			return nil, err
		}
		response.Found = append(response.Found, found)
	}
	return response, nil
}

// renewAll renews the slots of requests.
func (s *Service) renewAll(_ context.Context, requests *list) (*checkv1.RenewResponse, error) {
	if err := requests.validate("slots", check.MaxBatch, ""); err != nil {
		return nil, err
	}
	response := &checkv1.RenewResponse{}
	for token := range requests.items() {
		response.Found = append(response.Found, s.options.Slots.Renew(token))
	}
	return response, nil
}

// release releases the slots of an encoded SlotRelease, and reports whether the table had them.
func release(slots *check.Slots, data []byte) (found bool, err error) {
	m, err := readRelease(data)
	if err != nil {
		return false, unreadable(err)
	}
	return slots.Release(m.GetSlots(), headgate.Outcome{
		Duration: span(m.GetDurationUs()), Status: int(m.GetStatus()), Cancelled: m.GetCancelled(),
	}), nil
}

func readRelease(data []byte) (*checkv1.SlotRelease, error) {
	m := &checkv1.SlotRelease{}
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1<<3 | protofields.Bytes:
			m.Slots = r.Bytes
		case 2 << 3:
			m.DurationUs = int64(r.Value)
		case 3 << 3:
			m.Status = int32(r.Value)
		case 4 << 3:
			m.Cancelled = r.Value != 0
		}
	}
	return m, r.Err
}
