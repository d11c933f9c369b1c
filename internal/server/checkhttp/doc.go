// Package checkhttp is our check API as JSON over HTTP, and forward-auth.
//
// It knows the documents that are asked and answered, which openapi.yaml describes and tests hold, and how proxies say
// which request they ask about. It does not know where rules and counters are, which it leaves to a check.Engine,
// nor what a denial looks like to a client, which it leaves to package httplimit.
package checkhttp
