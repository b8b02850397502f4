//! Finding a field by its name.

/// The fields of a container by their names in JSON. Few: they are compared one
/// after the other, those of the right length.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// `"name":`, as it mostly comes.
    keys: Box<[Box<[u8]>]>,
}

impl Names {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            keys: names
                .map(|name| format!("\"{name}\":").into_bytes().into())
                .collect(),
        }
    }

    /// `"name":` of a field.
    pub fn key(&self, field: usize) -> &[u8] {
        self.keys.get(field).map_or(&[], |key| key)
    }

    /// The field of that name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.keys
            .iter()
            .position(|key| key.len() == name.len() + 3 && &key[1..key.len() - 2] == name)
    }
}
