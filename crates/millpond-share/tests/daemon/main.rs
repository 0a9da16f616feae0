//! The daemon, over its sockets: clients that behave and clients that do not.

mod behaved;
mod control;
mod hostile;
mod place;
mod program;
mod scrape;
mod stand;
mod users;
