// Package checkhttp serves the check API as JSON over HTTP, and forward-auth.
//
// It defines the documents of requests and responses, which openapi.yaml describes and tests verify, and how proxies report
// the original request. Decisions are made by a check.Engine, and denials are written by package httplimit.
package checkhttp
