package main

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

func newEcho(limit func(http.Handler) http.Handler) *echo.Echo {
	router := echo.New()
	router.Use(echo.WrapMiddleware(limit))
	router.GET("/hello", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	return router
}
