// Package attack contains attacks that evade a limit or harm other clients: one named test for each attack that once worked,
// with a corpus or matrix of similar ones. The tests use Headgate as its users do, with real servers and the default
// configuration.
package attack
