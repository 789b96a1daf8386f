-- name: take
SELECT take_turn($1, $2, $3, $4);
