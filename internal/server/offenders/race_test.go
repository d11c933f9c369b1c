//go:build race

package offenders

// raceEnabled says that the tests run under the race detector, which takes ten times as long.
const raceEnabled = true
