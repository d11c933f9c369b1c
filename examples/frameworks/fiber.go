package main

import (
	"bufio"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

func newFiber(limit func(http.Handler) http.Handler) *fiber.App {
	app := fiber.New(fiber.Config{CaseSensitive: true}) // or ignore_case in every rule with a path
	app.Use(recover.New(), fiberLimit(limit))
	app.Get("/hello", func(c fiber.Ctx) error { return c.SendString("hello\n") })
	return app
}

func fiberLimit(limit func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		// Every string is a copy: Fiber reuses its buffers after the request.
		uri, header := c.Request().URI(), http.Header{}
		for name, value := range c.Request().Header.All() {
			header.Add(string(name), string(value))
		}
		r := (&http.Request{
			Method: string(c.Request().Header.Method()), Host: string(uri.Host()), Header: header,
			RequestURI: string(c.Request().Header.RequestURI()),
			URL:        &url.URL{Path: string(uri.Path()), RawQuery: string(uri.QueryString())},
			RemoteAddr: c.RequestCtx().RemoteAddr().String(), Body: http.NoBody,
		}).WithContext(c.Context())
		w := fiberWriter{c, http.Header{}}
		var err error
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			w.sendHeader()
			c.SetContext(r.Context()) // for httplimit.Keep
			err = c.Next()
		})).ServeHTTP(w, r)
		return err
	}
}

// fiberWriter writes the headers of a limit, and the response to a denied request.
type fiberWriter struct {
	c      fiber.Ctx
	header http.Header
}

func (w fiberWriter) Header() http.Header            { return w.header }
func (w fiberWriter) Write(body []byte) (int, error) { return w.c.Write(body) }
func (w fiberWriter) WriteHeader(status int)         { w.sendHeader(); w.c.Status(status) }

func (w fiberWriter) sendHeader() {
	for name, values := range w.header {
		for _, value := range values {
			w.c.Response().Header.Add(name, value)
		}
	}
}

// fiberStream returns a handler that streams. Fiber runs write after the handler has returned, so the handler keeps its units of
// concurrency limits.
func fiberStream(write func(*bufio.Writer)) fiber.Handler {
	return func(c fiber.Ctx) error {
		done := httplimit.Keep(new(http.Request).WithContext(c.Context()))
		return c.SendStreamWriter(func(w *bufio.Writer) {
			defer done(headgate.Outcome{})
			write(w)
		})
	}
}
