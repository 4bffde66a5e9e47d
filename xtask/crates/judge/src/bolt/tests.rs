//! Databases written here, byte by byte, in both byte orders.

use super::*;

const SIZE: usize = 512;

/// Writes numbers in one byte order.
struct Writer {
    big: bool,
}

impl Writer {
    fn put(&self, page: &mut [u8], at: usize, number: u64, bytes: usize) {
        let (big, little) = (number.to_be_bytes(), number.to_le_bytes());
        page[at..at + bytes].copy_from_slice(if self.big { &big[8 - bytes..] } else { &little[..bytes] });
    }

    fn meta(&self, transaction: u64, root: u64) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        for (at, number, bytes) in
            [(0, u64::from(MAGIC), 4), (4, 2, 4), (8, SIZE as u64, 4), (16, root, 8), (48, transaction, 8)]
        {
            self.put(&mut page, PAGE_HEADER + at, number, bytes);
        }
        let sum = fnv(&page[PAGE_HEADER..PAGE_HEADER + 56]);
        self.put(&mut page, PAGE_HEADER + 56, sum, 8);
        page
    }

    fn leaf(&self, entries: &[(u32, &[u8], &[u8])], length: usize) -> Vec<u8> {
        let mut page = vec![0; length];
        self.put(&mut page, 8, u64::from(LEAF), 2);
        self.put(&mut page, 10, entries.len() as u64, 2);
        self.put(&mut page, 12, (length / SIZE).saturating_sub(1) as u64, 4);
        let mut content = PAGE_HEADER + entries.len() * ELEMENT;
        for (index, (flags, key, value)) in entries.iter().enumerate() {
            let at = PAGE_HEADER + index * ELEMENT;
            let numbers = [u64::from(*flags), (content - at) as u64, key.len() as u64, value.len() as u64];
            for (word, number) in numbers.into_iter().enumerate() {
                self.put(&mut page, at + word * 4, number, 4);
            }
            for part in [key, value] {
                page[content..content + part.len()].copy_from_slice(part);
                content += part.len();
            }
        }
        page
    }

    fn branch(&self, pages: &[u64]) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        self.put(&mut page, 8, u64::from(BRANCH), 2);
        self.put(&mut page, 10, pages.len() as u64, 2);
        for (index, number) in pages.iter().enumerate() {
            self.put(&mut page, PAGE_HEADER + index * ELEMENT + 8, *number, 8);
        }
        page
    }

    fn bucket(&self, root: u64, inline: &[u8]) -> Vec<u8> {
        let mut value = vec![0; 16];
        self.put(&mut value, 0, root, 8);
        [&value, inline].concat()
    }
}

/// Two metas; a root with the buckets `key` (a branch over two leaves, the second with overflow) and `small`, which is
/// inline.
pub(crate) fn database(big: bool, first: &[Entry<'_>], second: &[Entry<'_>]) -> Vec<u8> {
    let writer = Writer { big };
    let leaf = |entries: &[Entry<'_>], length| {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (0, *key, *value)).collect();
        writer.leaf(&entries, length)
    };
    let small = writer.bucket(0, &writer.leaf(&[(0, b"a", b"1")], 64));
    let root = writer.leaf(&[(IS_BUCKET, b"key", &writer.bucket(3, b"")), (IS_BUCKET, b"small", &small)], SIZE);
    let pages =
        [writer.meta(6, 9), writer.meta(7, 2), root, writer.branch(&[4, 5]), leaf(first, SIZE), leaf(second, 3 * SIZE)];
    pages.concat()
}

#[test]
fn entries_of_both_byte_orders_are_read_in_order() {
    for big in [false, true] {
        let long = vec![b'v'; 900];
        let bytes = database(big, &[(b"a", b"1"), (b"b", b"")], &[(b"c", &long)]);
        let database = Database::open(&bytes).unwrap();
        assert_eq!(database.bucket(b"key").unwrap(), [(&b"a"[..], &b"1"[..]), (b"b", b""), (b"c", &long)]);
        assert_eq!(database.bucket(b"small").unwrap(), [(&b"a"[..], &b"1"[..])]);
        assert!(database.bucket(b"other").unwrap_err().contains("no bucket `other`"));
    }
}

#[test]
fn newest_valid_meta_page_counts() {
    let mut bytes = database(false, &[(b"a", b"1")], &[]);
    // The newer one is damaged: the root of the older one is outside of the file.
    bytes[SIZE + PAGE_HEADER + 20] ^= 1;
    assert!(Database::open(&bytes).unwrap().bucket(b"key").unwrap_err().contains("page 9 is outside"));
    // Without the first one, the second is found by trying the page sizes.
    let mut bytes = database(false, &[(b"a", b"1")], &[]);
    bytes[..SIZE].fill(0);
    assert_eq!(Database::open(&bytes).unwrap().bucket(b"key").unwrap(), [(&b"a"[..], &b"1"[..])]);
    assert!(Database::open(&bytes[..SIZE]).is_err());
    assert!(Database::open(b"").is_err());
}

#[test]
fn damage_is_an_error_and_ends() {
    let bytes = database(false, &[(b"a", b"1")], &[(b"c", b"2")]);
    for at in 2 * SIZE..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 0xff;
        if let Ok(database) = Database::open(&broken) {
            let _ = database.bucket(b"key");
        }
    }
    for length in 0..bytes.len() {
        if let Ok(database) = Database::open(&bytes[..length]) {
            let _ = database.bucket(b"key");
        }
    }
    let writer = Writer { big: false };
    let mut circle = bytes.clone();
    circle[3 * SIZE..4 * SIZE].copy_from_slice(&writer.branch(&[4, 3, 3]));
    assert!(Database::open(&circle).unwrap().bucket(b"key").unwrap_err().contains("two pages lead to page 4"));
    let chain: Vec<u8> = (0..100).flat_map(|next| writer.branch(&[next + 4])).collect();
    let chain = [&bytes[..3 * SIZE], &chain].concat();
    assert!(Database::open(&chain).unwrap().bucket(b"key").unwrap_err().contains("deeper than 64"));
}
