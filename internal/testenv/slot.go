package testenv

import "strings"

// slotCount is the number of slots of a Cluster.
const slotCount = 16384

// Slot returns the Cluster slot of a key: CRC16 (XMODEM) of its hash tag, which is the text between its first "{" and the next "}", or
// of the whole key if the hash tag is missing or empty.
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
