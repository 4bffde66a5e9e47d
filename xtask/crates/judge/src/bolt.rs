//! Database files of bbolt, in which etcd keeps its keys: read-only, from the bytes of the whole file.
//!
//! The format is that of <https://github.com/etcd-io/bbolt/blob/v1.4.3/internal/common/page.go> and `meta.go` next to it.
//! Numbers have the byte order of the machine that wrote the file. Not here: what etcd puts into the buckets
//! ([`crate::store_file`]).

use std::collections::HashSet;

const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
/// Bytes before the content of a page.
const PAGE_HEADER: usize = 16;
/// Bytes of an entry in a branch or leaf page.
const ELEMENT: usize = 16;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
/// Set for an entry of a leaf that is a bucket.
const IS_BUCKET: u32 = 1;
/// Deepest tree of pages: with two entries in each page, it has more pages than a file can have.
const DEEPEST: usize = 64;
/// Page sizes of all machines; the second meta page is at one of these.
const PAGE_SIZES: [usize; 7] = [512, 1024, 4096, 8192, 16_384, 32_768, 65_536];

/// A database as of its last complete transaction.
#[derive(Clone, Copy, Debug)]
pub struct Database<'a> {
    bytes: &'a [u8],
    order: Order,
    page_size: usize,
    /// The page of the root bucket.
    root: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// The pages that a walk has visited, and how deep it is.
#[derive(Default)]
struct Way {
    seen: HashSet<u64>,
    depth: usize,
}

/// A key and a value in a bucket.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

impl<'a> Database<'a> {
    /// Takes the newer one of both meta pages that is valid: the other one may have been cut by a crash.
    ///
    /// # Errors
    /// Neither is valid.
    pub fn open(bytes: &'a [u8]) -> Result<Database<'a>, String> {
        let first = meta(bytes, 0);
        let sizes = first.as_ref().map_or_else(|| PAGE_SIZES.to_vec(), |(_, database)| vec![database.page_size]);
        let second = sizes.into_iter().find_map(|at| meta(bytes, at));
        let newest = first.into_iter().chain(second).max_by_key(|(transaction, _)| *transaction);
        newest.map(|(_, database)| database).ok_or_else(|| "not a database of bbolt: no valid meta page".to_owned())
    }

    /// The entries of a bucket in the order of their keys.
    ///
    /// # Errors
    /// There is no such bucket, or a page is damaged.
    pub fn bucket(&self, name: &[u8]) -> Result<Vec<Entry<'a>>, String> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        let mut found = None;
        self.walk(self.page(self.root)?, &mut Way::default(), &mut |is_bucket, key, value| {
            if is_bucket && key == name {
                found = Some(value);
            }
        })?;
        let value = found.ok_or_else(|| format!("no bucket `{}`", shown()))?;
        let root = self.order.u64(value, 0).ok_or_else(|| format!("bucket `{}` is damaged", shown()))?;
        // The pages of a small bucket are in its value.
        let page = if root == 0 { value.get(16..).unwrap_or_default() } else { self.page(root)? };
        let mut entries = Vec::new();
        self.walk(page, &mut Way::default(), &mut |is_bucket, key, value| {
            if !is_bucket {
                entries.push((key, value));
            }
        })?;
        Ok(entries)
    }

    /// The bytes of a page with its overflow.
    fn page(&self, number: u64) -> Result<&'a [u8], String> {
        let damaged = || format!("page {number} is outside of the file");
        let begin = usize::try_from(number).ok().and_then(|number| number.checked_mul(self.page_size));
        let page = begin.and_then(|begin| self.bytes.get(begin..)).ok_or_else(damaged)?;
        let overflow = self.order.u32(page, 12).ok_or_else(damaged)?;
        let pages = (overflow as usize).checked_add(1).and_then(|pages| pages.checked_mul(self.page_size));
        pages.and_then(|length| page.get(..length)).ok_or_else(damaged)
    }

    /// Visits the entries below a page. A page that leads to itself is damage.
    fn walk(
        &self,
        page: &'a [u8],
        way: &mut Way,
        visit: &mut dyn FnMut(bool, &'a [u8], &'a [u8]),
    ) -> Result<(), String> {
        let damaged = || "a page is damaged".to_owned();
        let flags = self.order.u16(page, 8).ok_or_else(damaged)?;
        let count = usize::from(self.order.u16(page, 10).ok_or_else(damaged)?);
        for index in 0..count {
            let at = PAGE_HEADER + index * ELEMENT;
            let element = page.get(at..).ok_or_else(damaged)?;
            match flags {
                BRANCH => {
                    let number = self.order.u64(element, 8).ok_or_else(damaged)?;
                    if !way.seen.insert(number) {
                        return Err(format!("two pages lead to page {number}"));
                    }
                    if way.depth == DEEPEST {
                        return Err(format!("page {number} is deeper than {DEEPEST} pages"));
                    }
                    way.depth += 1;
                    self.walk(self.page(number)?, way, visit)?;
                    way.depth -= 1;
                }
                LEAF => {
                    let word = |at| self.order.u32(element, at).map(|word| word as usize);
                    let entry = || {
                        let (position, key, value) = (word(4)?, word(8)?, word(12)?);
                        let content = element.get(position..)?;
                        let (key, rest) = content.split_at_checked(key)?;
                        Some((key, rest.get(..value)?))
                    };
                    let (key, value) = entry().ok_or_else(damaged)?;
                    let is_bucket = self.order.u32(element, 0).is_some_and(|flags| flags & IS_BUCKET != 0);
                    visit(is_bucket, key, value);
                }
                _ => return Err(format!("a page of another kind ({flags}) is in a bucket")),
            }
        }
        Ok(())
    }
}

/// The meta page at this position, with the number of its transaction; None if it is not valid.
fn meta(bytes: &[u8], at: usize) -> Option<(u64, Database<'_>)> {
    let meta = bytes.get(at..)?.get(PAGE_HEADER..PAGE_HEADER + 64)?;
    let order = [Order::Little, Order::Big].into_iter().find(|order| order.u32(meta, 0) == Some(MAGIC))?;
    let page_size = order.u32(meta, 8)? as usize;
    let valid = order.u32(meta, 4) == Some(VERSION)
        && order.u64(meta, 56) == Some(fnv(&meta[..56]))
        && PAGE_SIZES.contains(&page_size);
    let database = Database { bytes, order, page_size, root: order.u64(meta, 16)? };
    valid.then_some((order.u64(meta, 48)?, database))
}

/// FNV-1a with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(if self == Order::Little { u16::from_le_bytes(*bytes) } else { u16::from_be_bytes(*bytes) })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(if self == Order::Little { u32::from_le_bytes(*bytes) } else { u32::from_be_bytes(*bytes) })
    }

    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(if self == Order::Little { u64::from_le_bytes(*bytes) } else { u64::from_be_bytes(*bytes) })
    }
}

/// For the fuzzer: makes the meta pages of a file with small pages valid.
#[doc(hidden)]
pub fn set_checksums(bytes: &mut [u8]) {
    for at in [0, PAGE_SIZES[0]] {
        if let Some(meta) = bytes.get_mut(at + PAGE_HEADER..at + PAGE_HEADER + 64) {
            let sum = fnv(&meta[..56]);
            let big = meta[..4] == MAGIC.to_be_bytes();
            meta[56..].copy_from_slice(&if big { sum.to_be_bytes() } else { sum.to_le_bytes() });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
