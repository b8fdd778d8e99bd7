//! The `composite` setting of a rule: TOML to the layout of a composite tool.
//!
//! Durable Jobs v1 spec §7.4 (dynamic catalogs, overrides by configuration).

use ua_core::Composite;

use crate::error::PolicyError;
use crate::parse::Field;

impl Field<'_> {
    pub(crate) fn composite(&self) -> Result<Composite, PolicyError> {
        let why = "write a table, as in { list = \"tools\", name = \"tool_slug\", arguments = \"arguments\" }; it may also have results, \
                   response and upper_case";
        let table = self.table(why)?;
        let (mut list, mut name, mut arguments) = (None, None, None);
        let (mut results, mut response, mut upper_case) = (None, None, false);
        for field in self.place.fields(table) {
            match field.name {
                "list" => list = Some(field.text()?),
                "name" => name = Some(field.text()?),
                "arguments" => arguments = Some(field.text()?),
                "results" => results = Some(field.text()?),
                "response" => response = Some(field.text()?),
                "upper_case" => upper_case = field.flag()?,
                _ => return Err(field.error(why)),
            }
        }
        match (list, name, arguments) {
            (Some(list), Some(name), Some(arguments)) => {
                Ok(Composite { list, name, arguments, results, response, upper_case })
            }
            _ => Err(self.error(why)),
        }
    }
}
