//! `snakepit loop`.

mod run;
