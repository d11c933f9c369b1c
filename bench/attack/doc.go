// Package attack holds what somebody would do who wants to get round a limit, or to hurt others: one named test for each way
// that worked once, and for each a corpus or matrix of its neighbours. The tests use Headgate as its users do, with real
// servers and the default configuration.
package attack
