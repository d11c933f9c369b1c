//go:build race

package redisstore

// underRace says that the race detector is on, with which comparisons take several times as long.
const underRace = true
