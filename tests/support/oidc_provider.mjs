// A real provider of logins, the npm package `oidc-provider`, on loopback: node oidc_provider.mjs MODULES PORT BACK
import { pathToFileURL } from 'node:url'
const [modules, port, back] = process.argv.slice(2)
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`))
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'counterseal', client_secret: 'a secret of the client', redirect_uris: [back],
    grant_types: ['authorization_code'], response_types: ['code'],
  }],
  cookies: { keys: ['kept by nobody'] },
  claims: { openid: ['sub'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  async findAccount(_, id) {
    const [sub, verified] = id.split('~')
    return { accountId: id, claims: () => ({ sub: id, email: `${sub}@example.com`, email_verified: verified === 'v' }) }
  },
})
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'))
