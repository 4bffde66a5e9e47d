//! Protobuf messages in the form that mutants read and change: split into fields, without a schema. Unchanged fields
//! are written back as they were.

/// A message; its fields are in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<Field>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Fixed64([u8; 8]),
    /// Text, bytes, or a message.
    Bytes(Vec<u8>),
    Fixed32([u8; 4]),
}

impl Message {
    /// None if the bytes are not a message.
    pub fn parse(mut bytes: &[u8]) -> Option<Message> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut bytes)?),
                1 => Value::Fixed64(take(&mut bytes, 8)?.try_into().ok()?),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    Value::Bytes(take(&mut bytes, length)?.to_vec())
                }
                5 => Value::Fixed32(take(&mut bytes, 4)?.try_into().ok()?),
                _ => return None,
            };
            fields.push(Field { number: tag >> 3, value });
        }
        Some(Message(fields))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Field { number, value } in &self.0 {
            match value {
                Value::Number(content) => {
                    put_varint(&mut bytes, number << 3);
                    put_varint(&mut bytes, *content);
                }
                Value::Fixed64(content) => {
                    put_varint(&mut bytes, number << 3 | 1);
                    bytes.extend_from_slice(content);
                }
                Value::Bytes(content) => {
                    put_varint(&mut bytes, number << 3 | 2);
                    put_varint(&mut bytes, content.len() as u64);
                    bytes.extend_from_slice(content);
                }
                Value::Fixed32(content) => {
                    put_varint(&mut bytes, number << 3 | 5);
                    bytes.extend_from_slice(content);
                }
            }
        }
        bytes
    }

    /// A number; 0 if it is absent, as in protobuf.
    pub fn number(&self, number: u64) -> u64 {
        let found = self.0.iter().rev().find_map(|field| match field.value {
            Value::Number(content) if field.number == number => Some(content),
            _ => None,
        });
        found.unwrap_or_default()
    }

    pub fn set_number(&mut self, number: u64, content: u64) {
        self.0.retain(|field| field.number != number);
        self.0.push(Field { number, value: Value::Number(content) });
    }

    /// Text or bytes; empty if the field is absent.
    pub fn bytes(&self, number: u64) -> &[u8] {
        let found = self.0.iter().rev().find_map(|field| match &field.value {
            Value::Bytes(content) if field.number == number => Some(content.as_slice()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    pub fn set_bytes(&mut self, number: u64, content: Vec<u8>) {
        match self.0.iter_mut().find(|field| field.number == number) {
            Some(field) => field.value = Value::Bytes(content),
            None => self.push(number, content),
        }
    }

    /// Adds a value to a repeated field.
    pub fn push(&mut self, number: u64, content: Vec<u8>) {
        self.0.push(Field { number, value: Value::Bytes(content) });
    }

    /// A message in this one; empty if it is absent.
    pub fn message(&self, number: u64) -> Message {
        Message::parse(self.bytes(number)).unwrap_or_default()
    }

    /// All messages in this one with that field number.
    pub fn messages(&self, number: u64) -> Vec<Message> {
        let of = |field: &Field| match &field.value {
            Value::Bytes(content) if field.number == number => Message::parse(content),
            _ => None,
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Changes each message in this one with that field number.
    pub fn edit(&mut self, number: u64, mut change: impl FnMut(&mut Message)) {
        for field in self.0.iter_mut().filter(|field| field.number == number) {
            let Value::Bytes(content) = &mut field.value else { continue };
            if let Some(mut inner) = Message::parse(content) {
                change(&mut inner);
                *content = inner.encode();
            }
        }
    }

    /// Keeps only those messages in this one with that field number for which `keep` returns true.
    pub fn retain(&mut self, number: u64, mut keep: impl FnMut(&Message) -> bool) {
        self.0.retain(|field| match &field.value {
            Value::Bytes(content) if field.number == number => Message::parse(content).is_none_or(|inner| keep(&inner)),
            _ => true,
        });
    }

    /// Removes a field.
    pub fn remove(&mut self, number: u64) {
        self.0.retain(|field| field.number != number);
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_fields_stay_as_they_were() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, 0x08, 0x01, 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.encode(), bytes);
        assert_eq!((message.number(1), message.message(2).number(1), message.number(9)), (150, 1, 0));
        for length in 1..bytes.len() {
            let whole = [3, 7, 12].contains(&length);
            assert_eq!(Message::parse(&bytes[..length]).is_some(), whole, "the first {length} bytes");
        }
        assert_eq!(Message::parse(&[0x80; 12]), None);
    }

    #[test]
    fn changed_fields_keep_their_place() {
        let mut message = Message::default();
        message.push(2, vec![0x08, 0x01]);
        message.push(2, vec![0x08, 0x02]);
        message.set_number(3, 300);
        message.edit(2, |inner| inner.set_number(1, inner.number(1) + 10));
        assert_eq!(message.messages(2).iter().map(|inner| inner.number(1)).collect::<Vec<_>>(), [11, 12]);
        message.retain(2, |inner| inner.number(1) == 12);
        message.set_number(3, 7);
        assert_eq!((message.messages(2).len(), message.number(3)), (1, 7));
        message.remove(2);
        message.set_bytes(4, b"x".to_vec());
        assert_eq!(message.encode(), [0x18, 7, 0x22, 1, b'x']);
    }
}
