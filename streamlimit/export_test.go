package streamlimit

// StopTimer stops the gate's timer and reports whether it was running.
func (g *Gate) StopTimer() bool { return g.timer != nil && g.timer.Stop() }
