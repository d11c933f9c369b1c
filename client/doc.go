// Package client asks a Headgate service what a headgate.Limiter would say: it has the same methods, so that limiting
// in this process and limiting by a service are one line apart.
//
//	limiter, err := client.New(client.Options{Addresses: []string{"headgate-1:8081", "headgate-2:8081"}})
//	http.Handle("/", httplimit.New(limiter, httplimit.Options{})(mux))
//
// It knows the servers: which of them answer, which are about to stop, which hang. It knows neither rules nor counters.
//
// # What happens without an answer
//
// A check has a deadline. If there is no answer by then, if the connection breaks after the check was sent, or if no
// server is there, Options.OnFailure decides: the decision's Path is then headgate.PathFailed, and its one limit
// carries the error. What was sent is never sent again, because it may have been charged; what was still waiting to
// be sent when its connection broke goes to another server.
//
// A server that is about to stop says so. Checks then go to the others at once, and what was asked before is still
// answered: a rolling restart is not noticed.
package client
