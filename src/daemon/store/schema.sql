-- The database of mien, as all migrations together make it (a test holds them equal).
--
-- One file, `mien.db`, in write-ahead mode with synchronous = FULL: what was answered is on disk.
-- Each writing process has one writer thread; processes take turns (BEGIN IMMEDIATE).
-- Times are seconds since 1970, places are ten-thousandths of a picture's width and height.

-- Small facts. `policy` rises with every change of a source or of a consent record: who watches
-- it knows that a running job must be told.
CREATE TABLE fact (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Enrolled faces. `sealed` is AES-256-GCM over record and portrait with the source's own key;
-- nothing of a face stands here in plain.
CREATE TABLE source (
    identity TEXT PRIMARY KEY,
    enrolled INTEGER NOT NULL,
    sealed   BLOB NOT NULL
) STRICT;

-- The key of each source, wrapped by the key of this machine. To forget a source is to lose its
-- key: the table is written anew without it, so that no page keeps an old copy.
CREATE TABLE source_key (
    identity TEXT PRIMARY KEY,
    wrapped  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Who agreed: the record in a DSSE envelope signed by a key of role consent, and the envelope that
-- takes it back. Nothing is read from here but through the signature.
CREATE TABLE consent (
    id         TEXT PRIMARY KEY,
    identity   TEXT NOT NULL,
    envelope   TEXT NOT NULL,
    revocation TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX consent_of ON consent (identity);

-- Sources that were forgotten, until the log holds no page of theirs any more. A process killed in
-- between leaves the row, and the next one finishes.
CREATE TABLE erasure (
    identity TEXT PRIMARY KEY,
    since    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER policy_source_added AFTER INSERT ON source BEGIN
    UPDATE fact SET value = value + 1 WHERE name = 'policy';
END;
CREATE TRIGGER policy_source_gone AFTER DELETE ON source BEGIN
    UPDATE fact SET value = value + 1 WHERE name = 'policy';
END;
CREATE TRIGGER policy_consent_added AFTER INSERT ON consent BEGIN
    UPDATE fact SET value = value + 1 WHERE name = 'policy';
END;
CREATE TRIGGER policy_consent_changed AFTER UPDATE ON consent BEGIN
    UPDATE fact SET value = value + 1 WHERE name = 'policy';
END;

-- The record. What stands in these columns is the row's canonical line (audit/line.rs), and `hash`
-- is the SHA-256 of it; `prev` is the hash of the row before.
CREATE TABLE audit (
    seq    INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    camera TEXT,
    job    BLOB,
    who    TEXT,
    faces  TEXT,
    body   TEXT NOT NULL,
    prev   BLOB NOT NULL,
    hash   BLOB NOT NULL
) STRICT;
CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_by_kind ON audit (kind, at);
CREATE INDEX audit_by_camera ON audit (camera, at) WHERE camera IS NOT NULL;
CREATE INDEX audit_by_job ON audit (job) WHERE job IS NOT NULL;

-- Rows are added at the end and stay as they are. This stops accidents; what stops a forger with
-- the file in hand are the chain, the signed heads and the exports.
CREATE TRIGGER audit_follows BEFORE INSERT ON audit BEGIN
    SELECT RAISE(ABORT, 'an audit row must follow the last one')
    WHERE NEW.seq IS NOT 1 + coalesce(
            (SELECT max(seq) FROM audit), (SELECT max(last) FROM audit_segment), 0)
        OR NEW.prev IS NOT coalesce(
            (SELECT hash FROM audit ORDER BY seq DESC LIMIT 1),
            (SELECT head FROM audit_segment ORDER BY last DESC LIMIT 1), zeroblob(32));
END;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'an audit row is never changed');
END;
CREATE TRIGGER audit_remains BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'an audit row is never deleted');
END;

-- Whom a row is about or whom it names, for queries. Follows from `audit`.
CREATE TABLE audit_who (
    who TEXT NOT NULL,
    at  INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (who, at, seq)
) STRICT, WITHOUT ROWID;

-- Where each face was, for queries. Follows from `audit`. Boxes are sorted into cells: the smaller a
-- box, the smaller its cell, and it is in the one that holds its upper left corner
-- (store/cells.rs). Inside a cell they stand by time, so that rows are added at few places and the
-- newest are found first. `n` is the face's number in its row.
CREATE TABLE audit_where (
    cell   INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    x0     INTEGER NOT NULL,
    y0     INTEGER NOT NULL,
    x1     INTEGER NOT NULL,
    y1     INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    camera TEXT,
    PRIMARY KEY (cell, at, seq, n)
) STRICT, WITHOUT ROWID;

-- Signed heads (DSSE): at intervals, at stop, and when a segment is sealed.
CREATE TABLE audit_head (
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    key      TEXT NOT NULL,
    envelope TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_head_stays BEFORE UPDATE ON audit_head BEGIN
    SELECT RAISE(ABORT, 'a signed head is never changed');
END;
CREATE TRIGGER audit_head_remains BEFORE DELETE ON audit_head BEGIN
    SELECT RAISE(ABORT, 'a signed head is never deleted');
END;

-- Segments that were sealed: exported with a signature, after which the table began anew. The first
-- row of what followed has `head` as its `prev`.
CREATE TABLE audit_segment (
    last      INTEGER PRIMARY KEY,
    first     INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    head      BLOB NOT NULL,
    statement TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_segment_stays BEFORE UPDATE ON audit_segment BEGIN
    SELECT RAISE(ABORT, 'a sealed segment is never changed');
END;
CREATE TRIGGER audit_segment_remains BEFORE DELETE ON audit_segment BEGIN
    SELECT RAISE(ABORT, 'a sealed segment is never deleted');
END;

-- Jobs of the fleet and of this machine's users. `document` is the signed text as it came; `state`
-- moves only as contract/state.rs allows, and each move stands in one transaction with a row of the
-- record and a message of the outbox. Times here are in ms since 1970. `arrival` counts jobs as they
-- came; `asked` is what was asked of a running job (cancel, pause) and not yet answered; `crashes`
-- counts deaths of the daemon while it ran.
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

-- Each try of a job: in which boot it began, and how it ended. One without an end was cut off.
CREATE TABLE attempt (
    job     TEXT NOT NULL,
    n       INTEGER NOT NULL,
    boot    TEXT NOT NULL,
    began   INTEGER NOT NULL,
    ended   INTEGER,
    outcome TEXT,
    PRIMARY KEY (job, n)
) STRICT, WITHOUT ROWID;

-- Ids of documents that were taken in, with the SHA-256 of what they said, until nobody can send
-- them again: the same id is answered with the job's state, or refused when it says something else.
CREATE TABLE inbox (
    id     TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The highest sequence number of each signer, and which of the 1024 up to it were seen (a bit each,
-- the lowest bit of the first byte is `top` itself): messages may overtake each other, never repeat.
CREATE TABLE signer (
    key  TEXT PRIMARY KEY,
    top  INTEGER NOT NULL,
    seen BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Messages that the broker has not acknowledged. Class 0 is never dropped, 1 for a week and up to a
-- bound, of 2 only the newest of a topic is kept.
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

-- The last number of each stream of events, and the range of it that was dropped and not yet told.
CREATE TABLE stream (
    name TEXT PRIMARY KEY,
    seq  INTEGER NOT NULL,
    lost_from INTEGER,
    lost_to   INTEGER
) STRICT, WITHOUT ROWID;

INSERT INTO fact (name, value) VALUES ('policy', 1);
