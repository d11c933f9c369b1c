// Package repotest holds the repository to its own rules: which package may import which, that every package says what it
// knows, and that the README's Go code compiles and survives a Redis that fails. It has nothing but tests.
package repotest
