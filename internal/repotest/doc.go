// Package repotest checks the rules of the repository: the imports of each package, its package comment, the vocabulary of names and
// texts, and that the README's Go code compiles and survives a failure of Redis. It contains only tests.
package repotest
