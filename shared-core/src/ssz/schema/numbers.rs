//! Numbers of the type tables: constants and expressions.

use super::resolve::Definitions;
use super::source::{Definition, DefinitionKind};
use super::tokens::{SchemaError, Token, Tokens};

impl Definitions {
    pub(super) fn only_number(&self, tokens: &mut Tokens<'_>) -> Result<u64, SchemaError> {
        tokens.expect('[')?;
        let number = self.number(tokens)?;
        tokens.expect(']')?;
        Ok(number)
    }

    pub(super) fn only_length(&self, tokens: &mut Tokens<'_>) -> Result<usize, SchemaError> {
        let number = self.only_number(tokens)?;
        usize::try_from(number).map_err(|_| SchemaError::new("a vector is too long for memory"))
    }

    pub(super) fn length(&self, tokens: &mut Tokens<'_>) -> Result<usize, SchemaError> {
        let number = self.number(tokens)?;
        usize::try_from(number).map_err(|_| SchemaError::new("a vector is too long for memory"))
    }

    /// Evaluates a sum of products of constants, with Python's precedence.
    pub(super) fn number(&self, tokens: &mut Tokens<'_>) -> Result<u64, SchemaError> {
        let too_large = || SchemaError::new("more than 64 bits");
        let mut sum = self.product(tokens)?;
        loop {
            if tokens.accept('+')? {
                sum = sum
                    .checked_add(self.product(tokens)?)
                    .ok_or_else(too_large)?;
            } else if tokens.accept('-')? {
                sum = sum
                    .checked_sub(self.product(tokens)?)
                    .ok_or_else(too_large)?;
            } else {
                return Ok(sum);
            }
        }
    }

    /// Evaluates one summand: a product of powers.
    pub(super) fn product(&self, tokens: &mut Tokens<'_>) -> Result<u64, SchemaError> {
        let too_large = || SchemaError::new("more than 64 bits");
        let mut product = self.power(tokens)?;
        loop {
            if tokens.accept('*')? {
                product = product
                    .checked_mul(self.power(tokens)?)
                    .ok_or_else(too_large)?;
            } else if tokens.accept('/')? {
                product = product
                    .checked_div(self.power(tokens)?)
                    .ok_or_else(|| SchemaError::new("a division by zero"))?;
            } else {
                return Ok(product);
            }
        }
    }

    fn power(&self, tokens: &mut Tokens<'_>) -> Result<u64, SchemaError> {
        let base = self.factor(tokens)?;
        if !tokens.accept('^')? {
            return Ok(base);
        }
        let power = u32::try_from(self.power(tokens)?).ok();
        let number = power.and_then(|power| base.checked_pow(power));
        number.ok_or_else(|| SchemaError::new("more than 64 bits"))
    }

    fn factor(&self, tokens: &mut Tokens<'_>) -> Result<u64, SchemaError> {
        if tokens.accept('(')? {
            let number = self.number(tokens)?;
            tokens.expect(')')?;
            return Ok(number);
        }
        match tokens.next()? {
            Some(Token::Number(number)) => Ok(number),
            // depth of a generalized index in its tree
            Some(Token::Name("floorlog2")) => {
                tokens.expect('(')?;
                let number = self.number(tokens)?;
                tokens.expect(')')?;
                let log = number.checked_ilog2().map(u64::from);
                log.ok_or_else(|| SchemaError::new("a logarithm of zero"))
            }
            Some(Token::Name(name)) => {
                let constant = self.by_name.get(name);
                let Some(Definition {
                    place,
                    means: DefinitionKind::Constant(text),
                }) = constant
                else {
                    return Err(SchemaError::new(format!("unknown constant {name}")));
                };
                let mut tokens = Tokens::new(text);
                let number = self.number(&mut tokens);
                let number = number.and_then(|number| tokens.end().map(|()| number));
                number.map_err(|bad| bad.at(place.0, place.1))
            }
            _ => Err(SchemaError::new("a number is missing")),
        }
    }
}
