package redisstore

// slots is the number of slots of a Redis Cluster.
const slots = 16384

// slotOf returns the key's slot in a Cluster: CRC16 (XMODEM) of the whole key, since our keys have no braces.
func slotOf(key string) uint16 {
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slots
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
