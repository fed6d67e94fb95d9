//! CRC-64-AVRO, the Rabin fingerprint of the Avro specification ("Schema Fingerprints").

/// The fingerprint of no bytes at all, and the polynomial's bit pattern.
const EMPTY: u64 = 0xc15d_213a_a4d7_a795;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut print = i as u64;
        let mut bit = 0;
        while bit < 8 {
            print = (print >> 1) ^ (EMPTY & (print & 1).wrapping_neg());
            bit += 1;
        }
        table[i] = print;
        i += 1;
    }
    table
}

/// The CRC-64-AVRO of `bytes`.
///
/// Libraries that print it as bytes (fastavro, Java) print this number's little-endian bytes.
#[must_use]
pub fn crc64_avro(bytes: &[u8]) -> u64 {
    let step = |print: u64, byte: &u8| (print >> 8) ^ TABLE[usize::from((print as u8) ^ byte)];
    bytes.iter().fold(EMPTY, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_avro_s_own_test_file() {
        // share/test/data/schema-tests.txt of Apache Avro, as signed 64-bit numbers.
        let known: [(&str, i64); 8] = [
            ("\"null\"", 7_195_948_357_588_979_594),
            ("\"boolean\"", -6_970_731_678_124_411_036),
            ("\"int\"", 8_247_732_601_305_521_295),
            ("\"long\"", -3_434_872_931_120_570_953),
            ("\"float\"", 5_583_340_709_985_441_680),
            ("\"double\"", -8_181_574_048_448_539_266),
            ("\"bytes\"", 5_746_618_253_357_095_269),
            ("\"string\"", -8_142_146_995_180_207_161),
        ];
        for (text, print) in known {
            assert_eq!(crc64_avro(text.as_bytes()) as i64, print, "{text}");
        }
        assert_eq!(crc64_avro(b"\"int\""), 0x7275_d51a_3f39_5c8f);
        assert_eq!(crc64_avro(b""), EMPTY);
    }
}
