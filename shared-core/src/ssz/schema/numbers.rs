//! Numbers of the type tables: constants and expressions.

use super::resolve::SchemaDefinitions;
use super::source::{DefinitionKind, SchemaDefinition};
use super::tokens::{SchemaError, TypeToken, TypeTokenizer};

impl SchemaDefinitions {
    /// Parses an arithmetic expression in square brackets.
    pub(super) fn parse_bracketed_number(
        &self,
        tokens: &mut TypeTokenizer<'_>,
    ) -> Result<u64, SchemaError> {
        tokens.expect_punctuation('[')?;
        let number = self.parse_sum(tokens)?;
        tokens.expect_punctuation(']')?;
        Ok(number)
    }

    /// Parses a vector's length in square brackets; a length that exceeds `usize` is an error.
    pub(super) fn parse_bracketed_length(
        &self,
        tokens: &mut TypeTokenizer<'_>,
    ) -> Result<usize, SchemaError> {
        let number = self.parse_bracketed_number(tokens)?;
        usize::try_from(number).map_err(|_| SchemaError::new("a vector is too long for memory"))
    }

    /// Parses a vector's length; a length that exceeds `usize` is an error.
    pub(super) fn parse_length(
        &self,
        tokens: &mut TypeTokenizer<'_>,
    ) -> Result<usize, SchemaError> {
        let number = self.parse_sum(tokens)?;
        usize::try_from(number).map_err(|_| SchemaError::new("a vector is too long for memory"))
    }

    /// Evaluates a sum of products of constants, with Python's precedence.
    pub(super) fn parse_sum(&self, tokens: &mut TypeTokenizer<'_>) -> Result<u64, SchemaError> {
        let too_large = || SchemaError::new("more than 64 bits");
        let mut sum = self.parse_product(tokens)?;
        loop {
            if tokens.accept_punctuation('+')? {
                sum = sum
                    .checked_add(self.parse_product(tokens)?)
                    .ok_or_else(too_large)?;
            } else if tokens.accept_punctuation('-')? {
                sum = sum
                    .checked_sub(self.parse_product(tokens)?)
                    .ok_or_else(too_large)?;
            } else {
                return Ok(sum);
            }
        }
    }

    /// Evaluates one summand: a product of powers.
    pub(super) fn parse_product(&self, tokens: &mut TypeTokenizer<'_>) -> Result<u64, SchemaError> {
        let too_large = || SchemaError::new("more than 64 bits");
        let mut product = self.parse_power(tokens)?;
        loop {
            if tokens.accept_punctuation('*')? {
                product = product
                    .checked_mul(self.parse_power(tokens)?)
                    .ok_or_else(too_large)?;
            } else if tokens.accept_punctuation('/')? {
                product = product
                    .checked_div(self.parse_power(tokens)?)
                    .ok_or_else(|| SchemaError::new("a division by zero"))?;
            } else {
                return Ok(product);
            }
        }
    }

    /// Parses a factor with an optional power, `base ^ exponent`, which associates to the right.
    fn parse_power(&self, tokens: &mut TypeTokenizer<'_>) -> Result<u64, SchemaError> {
        let base = self.parse_factor(tokens)?;
        if !tokens.accept_punctuation('^')? {
            return Ok(base);
        }
        let power = u32::try_from(self.parse_power(tokens)?).ok();
        let number = power.and_then(|power| base.checked_pow(power));
        number.ok_or_else(|| SchemaError::new("more than 64 bits"))
    }

    /// Parses a number, the name of a constant, `floorlog2` of an index, or a sum in parentheses.
    fn parse_factor(&self, tokens: &mut TypeTokenizer<'_>) -> Result<u64, SchemaError> {
        if tokens.accept_punctuation('(')? {
            let number = self.parse_sum(tokens)?;
            tokens.expect_punctuation(')')?;
            return Ok(number);
        }
        match tokens.next_token()? {
            Some(TypeToken::Number(number)) => Ok(number),
            // depth of a generalized index in its tree
            Some(TypeToken::Name("floorlog2")) => {
                tokens.expect_punctuation('(')?;
                let number = self.parse_sum(tokens)?;
                tokens.expect_punctuation(')')?;
                let log = number.checked_ilog2().map(u64::from);
                log.ok_or_else(|| SchemaError::new("a logarithm of zero"))
            }
            Some(TypeToken::Name(name)) => {
                let constant = self.by_name.get(name);
                let Some(SchemaDefinition {
                    place,
                    means: DefinitionKind::Constant(text),
                }) = constant
                else {
                    return Err(SchemaError::new(format!("unknown constant {name}")));
                };
                let mut tokens = TypeTokenizer::new(text);
                let number = self.parse_sum(&mut tokens);
                let number = number.and_then(|number| tokens.expect_end().map(|()| number));
                number.map_err(|bad| bad.with_location(place.0, place.1))
            }
            _ => Err(SchemaError::new("a number is missing")),
        }
    }
}
