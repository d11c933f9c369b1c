package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/explain"
)

// explainThere asks a running server.
func explainThere(ctx context.Context, o *explainOptions, q *question) (*explain.Report, error) {
	s, err := o.open(askTimeout)
	if err != nil {
		return nil, err
	}
	defer s.client.CloseIdleConnections()
	r, err := s.explain(ctx, o.question(q))
	if err != nil {
		return nil, err
	}
	r.Server, r.Notes = s.address, slices.Concat(q.notes, r.Notes)
	return r, nil
}

func (s *adminServer) explain(ctx context.Context, q explain.Question) (*explain.Report, error) {
	var r explain.Report
	err := s.call(ctx, http.MethodPost, adminapi.ExplainPath, q, &r)
	var refused *refusal
	switch {
	case errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusMethodNotAllowed):
		return nil, s.stranger()
	case err != nil:
		return nil, err
	case r.Version > explain.Version:
		return nil, fmt.Errorf("%s is newer than this headgate, and answers in version %d: take a newer headgate", s.address,
			r.Version)
	case r.Version != explain.Version:
		return nil, s.stranger()
	}
	return &r, nil
}
