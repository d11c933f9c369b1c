// Package client is a client of a Headgate service. It has the methods of a headgate.Limiter, so switching between limiting in
// this process and limiting by a service is a change of one line.
//
//	limiter, err := client.New(client.Options{Addresses: []string{"headgate-1:8081", "headgate-2:8081"}})
//	http.Handle("/", httplimit.New(limiter, httplimit.Options{})(mux))
//
// It knows the servers: which are available, which are draining, which hang. It does not know rules or counters.
//
// # Failures
//
// A check has a deadline. Options.OnFailure decides if there is no response within the deadline, if the connection breaks after the
// check was sent, or if no server is available. The decision's Path is then headgate.PathFailed, and its only limit carries the
// error. A check that was sent is never sent again, because it may have been charged. A check that was still queued when its
// connection broke is sent to another server.
//
// # Requests in flight
//
// Begin also applies concurrency limits, and Decision.Done reports the end of the request; packages httplimit and grpclimit call both.
// The server has the units, on the connection that the request was decided on, and releases them when it ends, such as when this process
// is killed. So Done never fails or waits. The units of a response that arrives after Options.Timeout are released at once. A connection
// to a draining server stays open until its requests have ended, at most for the server's drain time.
//
// # Draining
//
// A server announces that it is draining. New checks then go to the other servers at once, and the draining server still responds
// to earlier checks, so a rolling restart loses no check.
package client
