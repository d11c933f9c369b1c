package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

func newGin(limit func(http.Handler) http.Handler) *gin.Engine {
	router := gin.New()
	router.Use(gin.Recovery(), ginLimit(limit))
	router.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	return router
}

func ginLimit(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath() // the attribute route
		allowed := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			allowed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !allowed {
			c.Abort()
		}
	}
}
