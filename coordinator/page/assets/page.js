// What both pages share: the key, the stream of parts, elements, words for figures.
//
// Nothing here makes HTML out of text: elements are made one by one, and what comes from the
// coordinator becomes text nodes alone.

const KEY = 'muster-page-key';
const SILENCE_MS = 15000;  // the coordinator says something each five seconds
const HIDDEN_MS = 60000;   // nobody has looked for so long: the stream is given back
const MAX_PAUSE_MS = 5000;

// --- the key ---

// It comes behind '#', which is in no request, and stays with this address of this browser.
function takeKey() {
  const match = /^#key=([0-9a-f]{64})$/.exec(location.hash);
  if (!match) return false;
  try {
    localStorage.setItem(KEY, match[1]);
  } catch {
    return false;
  }
  history.replaceState(null, '', location.pathname + location.search);
  return true;
}

function keyHeaders() {
  let key = null;
  try {
    key = localStorage.getItem(KEY);
  } catch {
    // Without storage there is no key; over TLS none is needed.
  }
  return key ? {Authorization: `Bearer ${key}`} : {};
}

export function ask(path, signal) {
  return fetch(path, {headers: keyHeaders(), cache: 'no-store', signal});
}

// --- the stream ---

// Parts by kind and name: parts.of('job') is a Map of "ID" to value, parts.one('cluster') a value.
class Parts {
  #kinds = new Map();

  of(kind) {
    if (!this.#kinds.has(kind)) this.#kinds.set(kind, new Map());
    return this.#kinds.get(kind);
  }
  one(kind) {
    return this.of(kind).get('');
  }

  // The kinds that have changed, each with the names that have.
  apply(message) {
    const changed = new Map();
    const note = (key) => {
      const slash = key.indexOf('/');
      const kind = slash < 0 ? key : key.slice(0, slash);
      const name = slash < 0 ? '' : key.slice(slash + 1);
      if (!changed.has(kind)) changed.set(kind, new Set());
      changed.get(kind).add(name);
      return [this.of(kind), name];
    };
    if (message.whole) {
      for (const [kind, names] of this.#kinds) {
        changed.set(kind, new Set(names.keys()));
        names.clear();
      }
    }
    for (const [key, value] of message.set) {
      const [names, name] = note(key);
      names.set(name, value);
    }
    for (const key of message.gone) {
      const [names, name] = note(key);
      names.delete(name);
    }
    return changed;
  }
}

// Follows `path` for as long as the page lives, and calls render(parts, changed, now) after each
// message; `now` is the coordinator's clock.
export class Feed {
  parts = new Parts();
  #path;
  #render;
  #abort = null;
  #heard = 0;
  #offset = 0;  // the coordinator's clock less ours
  #wake = () => {};

  constructor(path, render) {
    this.#path = path;
    this.#render = render;
  }

  now() {
    return Date.now() + this.#offset;
  }

  start() {
    takeKey();
    addEventListener('hashchange', () => {
      if (takeKey()) this.#again();
    });
    let hidden = 0;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(() => this.#abort?.abort(), HIDDEN_MS);
      else this.#wake();
    });
    setInterval(() => this.#watch(), 1000);
    this.#run();
  }

  async #run() {
    for (let pause = 250;; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
      this.#heard = Date.now();
      // A key may come at any time from here on.
      const woken = new Promise((resolve) => this.#wake = resolve);
      let refused = null;
      try {
        refused = await this.#listen(() => pause = 250);
      } catch {
        // The line broke, or was silent for too long.
      }
      if (refused) {
        showConnection('refused', 'no answer');
        showNotice(refused.text);
        if (refused.status === 403) await offerSignIn();
      }
      if (!refused) showConnection('lost', 'reconnecting');
      const final = refused && (refused.status === 403 || refused.status === 404);
      if (!final && !document.hidden) setTimeout(this.#wake, pause);
      await woken;
    }
  }

  #again() {
    this.#abort?.abort();
    this.#wake();
  }

  async #listen(connected) {
    this.#abort = new AbortController();
    const response = await ask(this.#path, this.#abort.signal);
    if (!response.ok) return {status: response.status, text: (await response.text()).trim()};
    connected();
    showConnection('live', 'live');
    showNotice('');
    showPerson();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return null;
      this.#heard = Date.now();
      const searched = Math.max(0, rest.length - 1);
      rest += value;
      let end = rest.indexOf('\n\n', searched);
      while (end >= 0) {
        this.#take(rest.slice(0, end));
        rest = rest.slice(end + 2);
        end = rest.indexOf('\n\n');
      }
    }
  }

  #take(event) {
    const data = event.split('\n').find((line) => line.startsWith('data: '));
    if (!data) return;
    const message = JSON.parse(data.slice(6));
    this.#offset = message.now - Date.now();
    this.#render(this.parts, this.parts.apply(message), message.now);
  }

  #watch() {
    if (Date.now() - this.#heard > SILENCE_MS) this.#abort?.abort();
  }
}

function showConnection(state, text) {
  const shown = byId('connection');
  shown.dataset.state = state;
  setText(shown, text);
}

export function showNotice(text) {
  const notice = byId('notice');
  notice.hidden = !text;
  setText(notice, text);
}

// --- people ---

// Who has signed in, and where people can; null in plain text, where the key stands for all.
async function session() {
  try {
    const answer = await fetch('/auth/session', {cache: 'no-store'});
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

async function offerSignIn() {
  const {issuers = [], user = null} = await session() ?? {};
  if (user) return;
  const to = encodeURIComponent(location.pathname + location.search);
  for (const issuer of issuers) {
    const href = `/auth/sign-in?issuer=${encodeURIComponent(issuer)}&to=${to}`;
    byId('notice').append(' ', el('a', {href, className: 'sign-in'},
                                  `Sign in at ${new URL(issuer).host}`));
  }
}

async function showPerson() {
  const {user = null, csrf = null} = await session() ?? {};
  byId('person').replaceChildren(...(user ? [user] : []));
  if (!csrf) return;
  const leave = async () => {
    await fetch('/auth/sign-out', {method: 'POST', headers: {'X-CSRF-Token': csrf}});
    location.reload();
  };
  byId('person').append(' ', el('button', {type: 'button', onclick: leave}, 'Sign out'));
}

// --- elements ---

export const byId = (id) => document.getElementById(id);

// el('a', {href: '/'}, 'text', child): properties, then children; what is no element becomes text.
export function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

const TONES = {
  running: 'good', succeeded: 'good', ready: 'good',
  starting: 'warn', recovering: 'warn', stopping: 'warn', suspect: 'warn', draining: 'warn',
  failed: 'bad', lost: 'bad', quarantined: 'bad', exited: 'bad', unkillable: 'bad',
  queued: 'info', suspended: 'info', joining: 'info', drained: 'info', preparing: 'info',
  reserving: 'info', launching: 'info', prepared: 'info', parked: 'info', aborting: 'warn',
};
export const toneOf = (state) => TONES[state] ?? 'idle';

export function setState(element, state, tone = toneOf(state)) {
  setClass(element, `state ${tone}`);
  setText(element, state);
}

// A figure with its name: what is looked at first.
export const percent = (ratio) => `${(100 * ratio).toFixed(1)} %`;

export class Tile {
  #value = el('strong');
  #note = el('small');
  constructor(root, title) {
    this.element = el('div', {className: 'tile'}, el('span', {}, title), this.#value, this.#note);
    root.append(this.element);
  }
  show(value, note = '', tone = '') {
    setText(this.#value, value);
    setText(this.#note, note);
    setClass(this.element, `tile ${tone}`);
  }
}

// A table that shows some rows of many. Its elements are made once, for the rows that are seen, and
// filled again.
//
// columns: {title, name, fill(cell, row)}; `name` is the class of its cells.
export class Table {
  #columns;
  #size;
  #first = 0;
  #rows = [];
  #shown = [];
  #body = el('tbody');
  #pager;
  #position = el('span', {className: 'dim'});
  #empty;

  constructor(root, columns, {size = 50, empty = 'none'} = {}) {
    this.#columns = columns;
    this.#size = size;
    this.#empty = el('p', {className: 'dim empty'}, empty);
    const head = el('tr', {}, ...columns.map(
        (column) => el('th', {className: column.name, scope: 'col'}, column.title)));
    const turn = (text, label, by) => el('button', {
      type: 'button', ariaLabel: label, onclick: () => this.#turn(by)}, text);
    this.#pager = el('div', {className: 'pager'}, turn('‹', 'Before', -size), this.#position,
                     turn('›', 'After', size));
    this.table = el('table', {}, el('thead', {}, head), this.#body);
    root.append(this.table, this.#empty, this.#pager);
  }

  show(rows) {
    this.#rows = rows;
    const last = Math.max(0, Math.ceil(rows.length / this.#size) - 1) * this.#size;
    this.#first = Math.min(this.#first, last);
    const seen = rows.slice(this.#first, this.#first + this.#size);
    while (this.#shown.length < seen.length) this.#shown.push(this.#makeRow());
    this.#shown.splice(seen.length).forEach((row) => row.element.remove());
    seen.forEach((row, i) => this.#columns.forEach(
        (column, c) => column.fill(this.#shown[i].cells[c], row, this.#shown[i].element)));
    this.#empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    this.#pager.hidden = rows.length <= this.#size;
    setText(this.#position, `${this.#first + 1} to ${this.#first + seen.length} of ${
        rows.length.toLocaleString('en')}`);
  }

  begin() {
    this.#first = 0;
  }

  #turn(by) {
    this.#first = Math.max(0, this.#first + by);
    if (this.#first >= this.#rows.length) this.#first -= by;
    this.show(this.#rows);
  }

  #makeRow() {
    const cells = this.#columns.map((column) => el('td', {className: column.name}));
    // Where there is no room for a head, each cell says what it is.
    cells.forEach((cell, c) => cell.dataset.title = this.#columns[c].title.toLowerCase());
    const element = el('tr', {}, ...cells);
    this.#body.append(element);
    return {element, cells};
  }
}

// The child of a cell that is made once: cell(td, () => el('a')).
export function inner(cell, make) {
  if (!cell.firstElementChild) cell.append(make());
  return cell.firstElementChild;
}

// --- words ---

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return '–';
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

export function bytes(count) {
  if (!count) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  for (; count >= 1024 && unit + 1 < units.length; ++unit) count /= 1024;
  return `${count.toFixed(count < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

export function count(number) {
  if (number === null || number === undefined) return '–';
  if (number < 10000) return Math.round(number).toLocaleString('en');
  const units = ['', 'k', 'M', 'G', 'T'];
  let unit = 0;
  for (; number >= 1000 && unit + 1 < units.length; ++unit) number /= 1000;
  return `${number.toFixed(number < 10 ? 2 : number < 100 ? 1 : 0)} ${units[unit]}`;
}

export function figure(number) {
  if (number === null || number === undefined) return '–';
  if (typeof number === 'string') return number;
  if (number !== 0 && (Math.abs(number) < 0.001 || Math.abs(number) >= 1e5))
    return number.toExponential(2);
  return number.toFixed(Math.abs(number) < 10 ? 4 : 2);
}

export const whole = (number) => number.toLocaleString('en');
export const clock = (ms) => ms ? new Date(ms).toLocaleTimeString('en-GB') : '–';
export const when = (ms) => ms ? new Date(ms).toLocaleString('en-GB') : '–';
export const plural = (n, one) => `${n.toLocaleString('en')} ${one}${n === 1 ? '' : 's'}`;

// What runs up to now, or ran.
export function age(job, now) {
  if (!job.started) return duration((now - job.submitted) / 1000);
  return duration(((job.ended || now) - job.started) / 1000);
}

// The newest events first; items are made once.
export class EventList {
  #root;
  #items = new Map();
  #withJobs;
  constructor(root, withJobs) {
    this.#root = root;
    this.#withJobs = withJobs;
  }

  show(events, jobs = new Map()) {
    for (const [seq, item] of this.#items) {
      if (events.has(seq)) continue;
      item.remove();
      this.#items.delete(seq);
    }
    for (const seq of [...events.keys()].sort((a, b) => a - b)) {
      if (this.#items.has(seq)) continue;
      const item = this.#make(events.get(seq), jobs);
      this.#items.set(seq, item);
      this.#root.prepend(item);
    }
  }

  #make(event, jobs) {
    const job = this.#withJobs && event.job ?
        el('a', {href: `/jobs/${encodeURIComponent(event.job)}`, className: 'user'},
           jobs.get(event.job)?.name || event.job) :
        null;
    return el('li', {className: event.severity},
              el('time', {dateTime: new Date(event.time).toISOString(), title: when(event.time)},
                 clock(event.time)),
              job, el('span', {className: 'user'}, event.message));
  }
}
