package redisstore

import (
	"context"
	_ "embed"
	"strconv"
	"time"
)

//go:embed lua/weights.lua
var weightsText string

var weightsScript = newScript(weightsText)

// weightsTTL is longer than weights of the past have an effect. It is renewed while there are servers.
const weightsTTL = 500 * 24 * time.Hour

// SwapWeights replaces the text that describes the weights of regions if it is still old, unless both are the same. It returns the text then, and
// the time of Redis. The text is empty at first, and is kept for more than a year after it was last read. After an error, the text may have been replaced.
func (s *Store) SwapWeights(ctx context.Context, name, old, replacement string) (current string, at time.Time, err error) {
	client, err := s.client(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	msg, err := s.run(ctx, client, weightsScript, []string{s.prefix + "weights:" + name}, old, replacement,
		strconv.FormatInt(int64(weightsTTL.Seconds()), 10))
	if err != nil {
		return "", time.Time{}, err
	}
	values, err := msg.AsStrSlice()
	if err != nil || len(values) != 2 {
		return "", time.Time{}, errReply
	}
	us, err := strconv.ParseInt(values[1], 10, 64)
	if err != nil {
		return "", time.Time{}, errReply
	}
	return values[0], time.UnixMicro(us).UTC(), nil
}
