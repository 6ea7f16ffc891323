CREATE TABLE job (
    id         TEXT PRIMARY KEY,
    execution  BLOB NOT NULL,
    kind       TEXT NOT NULL,
    issuer     TEXT NOT NULL,
    origin     TEXT NOT NULL,
    topic      TEXT NOT NULL,
    document   TEXT NOT NULL,
    state      TEXT NOT NULL,
    ended      INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    crashes    INTEGER NOT NULL,
    priority   INTEGER NOT NULL,
    step       TEXT,
    permille   INTEGER,
    reason     TEXT,
    pointer    TEXT,
    detail     TEXT,
    result     TEXT,
    asked      TEXT,
    boot       TEXT NOT NULL,
    fence      INTEGER,
    received   INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    updated    INTEGER NOT NULL,
    arrival    INTEGER NOT NULL
) STRICT;
CREATE INDEX job_open ON job (arrival) WHERE ended = 0;
CREATE INDEX job_ended ON job (updated) WHERE ended = 1;

CREATE TABLE attempt (
    job     TEXT NOT NULL,
    n       INTEGER NOT NULL,
    boot    TEXT NOT NULL,
    began   INTEGER NOT NULL,
    ended   INTEGER,
    outcome TEXT,
    PRIMARY KEY (job, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    id     TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE signer (
    key  TEXT PRIMARY KEY,
    top  INTEGER NOT NULL,
    seen BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    n       INTEGER PRIMARY KEY AUTOINCREMENT,
    topic   TEXT NOT NULL,
    class   INTEGER NOT NULL,
    retain  INTEGER NOT NULL,
    made    INTEGER NOT NULL,
    until   INTEGER,
    stream  TEXT,
    seq     INTEGER,
    payload BLOB NOT NULL
) STRICT;
CREATE INDEX outbox_topic ON outbox (topic, n);
CREATE INDEX outbox_class ON outbox (class, n);

CREATE TABLE stream (
    name TEXT PRIMARY KEY,
    seq  INTEGER NOT NULL,
    lost_from INTEGER,
    lost_to   INTEGER
) STRICT, WITHOUT ROWID;
