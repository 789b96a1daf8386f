-- Looks up the owner of a bearer token by the token's hash, and why it is not valid any more (null if it is valid).
--
-- Executed by counterseal_faces, before it knows the tenant of a request: the hash cannot be guessed. It runs with the
-- rights of counterseal_finder, which never logs in and may only read tokens, people and approvals. If the engine owned
-- the function, it could alter it.
CREATE OR REPLACE FUNCTION token_owner(hash text)
RETURNS TABLE (tenant_id text, subject text, roles text[], ended text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT t.tenant_id, t.subject, t.roles,
    CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= now() THEN 'expired'
      WHEN p.person_id IS NULL OR p.owner IS NOT NULL AND o.person_id IS NULL THEN 'left'
      WHEN NOT (p.active AND coalesce(o.active, true)) THEN 'deactivated' END
  FROM tokens t LEFT JOIN people p ON p.tenant_id = t.tenant_id AND p.person_id = t.subject
  LEFT JOIN people o ON o.tenant_id = t.tenant_id AND o.person_id = p.owner
  WHERE t.token_hash = hash
$function$;

ALTER FUNCTION token_owner OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION token_owner FROM PUBLIC;

GRANT EXECUTE ON FUNCTION token_owner TO counterseal_faces;
