package main

import (
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
)

func newChi(limit func(http.Handler) http.Handler) *chi.Mux {
	router := chi.NewRouter()
	router.Use(limit)
	router.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	return router
}
