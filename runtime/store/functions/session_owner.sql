-- Looks up the person of a console's session, or of a link that logs in once, by its hash, and why it is not valid any
-- more (null if it is valid).
--
-- Executed by counterseal_faces, before it knows the tenant of a request: the hash cannot be guessed. It runs with the
-- rights of counterseal_finder, as token_owner does. A session by a token ends with that token.
CREATE OR REPLACE FUNCTION session_owner(hash text)
RETURNS TABLE (
  tenant_id text, subject text, name text, roles text[], kind text, expires_at timestamptz, ended text
)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT s.tenant_id, s.subject, p.name, s.roles, s.kind, s.expires_at,
    CASE WHEN s.ended_at IS NOT NULL THEN 'over' WHEN s.expires_at <= now() OR t.expires_at <= now() THEN 'expired'
      WHEN s.token_hash IS NOT NULL AND (t.token_hash IS NULL OR t.revoked_at IS NOT NULL) THEN 'revoked'
      WHEN p.person_id IS NULL OR p.owner IS NOT NULL THEN 'left' WHEN NOT p.active THEN 'deactivated' END
  FROM sessions s LEFT JOIN tokens t ON t.token_hash = s.token_hash
  LEFT JOIN people p ON p.tenant_id = s.tenant_id AND p.person_id = s.subject
  WHERE s.session_hash = hash
$function$;

ALTER FUNCTION session_owner OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION session_owner FROM PUBLIC;

GRANT EXECUTE ON FUNCTION session_owner TO counterseal_faces;
