CREATE TABLE fact (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE source (
    identity TEXT PRIMARY KEY,
    enrolled INTEGER NOT NULL,
    sealed   BLOB NOT NULL
) STRICT;
CREATE TABLE source_key (
    identity TEXT PRIMARY KEY,
    wrapped  BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE consent (
    id         TEXT PRIMARY KEY,
    identity   TEXT NOT NULL,
    envelope   TEXT NOT NULL,
    revocation TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX consent_of ON consent (identity);
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
CREATE TABLE audit_who (
    who TEXT NOT NULL,
    at  INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (who, at, seq)
) STRICT, WITHOUT ROWID;
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
INSERT INTO fact (name, value) VALUES ('policy', 1);
