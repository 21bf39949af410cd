INSERT INTO volume (id, uuid, label, point, device, filesystem, first_seen, last_seen)
    VALUES (7, 'a-uuid', 'data', CAST('/mnt/data' AS BLOB), CAST('/dev/sdb1' AS BLOB), 'xfs', 1790000000, 1790003600);
INSERT INTO tally (step, at, volume, counter, value) VALUES (0, 1790002800, 7, 'fragments-prevented', 12);
INSERT INTO gauge (volume, at, files, excess_fragments) VALUES (7, 1790000000, 100, 5);
INSERT INTO event (at, volume, severity, kind, text, path) VALUES (1790000001, 7, 'alert', 'space-alert', 'Look', NULL);
INSERT INTO spent (volume, day, bytes) VALUES (7, 1789948800, 4096);
