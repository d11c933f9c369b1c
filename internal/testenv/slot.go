package testenv

import "strings"

// slotCount is how many a Cluster has.
const slotCount = 16384

// Slot is the Cluster slot of a key: CRC16 (XMODEM) of the key, or of what
// stands between its first "{" and the next "}" if that is not empty.
func Slot(key string) int {
	if _, tail, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(tail, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slotCount
}
