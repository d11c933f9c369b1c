//go:build !race

package offenders

// raceEnabled says that the tests run under the race detector.
const raceEnabled = false
