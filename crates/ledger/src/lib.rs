//! History: what Longrun did and what it was good for, in one SQLite file.
