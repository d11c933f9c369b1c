// The site is made of docs/ as it is on GitHub: no page is copied or changed for it.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const repository = 'https://github.com/headgate/headgate'
const docs = join(dirname(fileURLToPath(import.meta.url)), '../../docs')

// docs/index.md is the only list of pages. A test compares it with the files.
function sidebar() {
  const groups = []
  for (const line of readFileSync(join(docs, 'index.md'), 'utf8').split('\n')) {
    const heading = line.match(/^## (.*)/)
    const page = line.match(/^- \[(.*?)\]\((.*?)\.md\)/)
    if (heading) groups.push({ text: heading[1], items: [] })
    if (page) groups.at(-1).items.push({ text: page[1], link: '/' + page[2] })
  }
  groups.push({ text: 'Decisions', collapsed: true, items: decisions() })
  return groups
}

function decisions() {
  return readdirSync(join(docs, 'adr')).filter((name) => name.endsWith('.md')).sort().map((name) => ({
    text: readFileSync(join(docs, 'adr', name), 'utf8').match(/^# (.*)/)[1],
    link: '/adr/' + name.replace(/\.md$/, ''),
  }))
}

// slugify returns the anchor that GitHub gives a heading.
const slugify = (title) => title.toLowerCase().replaceAll('`', '').replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

// linkRepository makes links to files outside of docs/, and to directories, links to the repository.
function linkRepository(md) {
  md.core.ruler.push('link_repository', (state) => {
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        const href = token.type === 'link_open' ? token.attrGet('href') : null
        if (!href || /^([a-z]+:|#|\/)/.test(href)) continue
        const [path, anchor] = href.split('#')
        const file = posix.join('docs', posix.dirname(state.env.relativePath), path)
        const target = join(docs, '..', file)
        const isDirectory = existsSync(target) && statSync(target).isDirectory()
        if (!file.startsWith('docs/') || isDirectory) {
          token.attrSet('href', `${repository}/${isDirectory ? 'tree' : 'blob'}/main/${file}${anchor ? '#' + anchor : ''}`)
        }
      }
    }
  })
}

// resolveHere finds the modules of pages in node_modules of this directory, which is not above docs/.
const resolveHere = {
  name: 'resolve-here',
  enforce: 'pre',
  resolveId(source, importer) {
    if (importer?.startsWith(docs) && /^vue(\/|$)/.test(source)) {
      return this.resolve(source, fileURLToPath(import.meta.url), { skipSelf: true })
    }
  },
}

export default defineConfig({
  srcDir: '../docs',
  outDir: 'out',
  cacheDir: 'node_modules/.cache/vitepress',
  title: 'Headgate',
  description: 'A distributed rate limiter in Go, with counters in Redis or Valkey',
  cleanUrls: false, // pages open from any web server, and from a directory
  ignoreDeadLinks: false,
  markdown: { anchor: { slugify }, config: linkRepository },
  vite: {
    server: { fs: { allow: ['../..'] } },
    plugins: [resolveHere],
  },
  themeConfig: {
    nav: [
      { text: 'Start', link: '/getting-started' },
      { text: 'Rules', link: '/rules' },
      { text: 'Production', link: '/production' },
      { text: 'Changelog', link: `${repository}/blob/main/CHANGELOG.md` },
    ],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/docs/:path`, text: 'Edit this page' },
    footer: { message: 'Apache License 2.0' },
  },
})
