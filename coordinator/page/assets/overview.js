// The cluster on one page: what needs somebody, sums, jobs, nodes, events.
import {
  age, byId, count, duration, el, EventList, Feed, figure, inner, plural, setClass,
  setState, setText, Table, Tile, toneOf, whole,
} from '/assets/page.js';

const GROUPS = {
  recovering: 0, running: 1, starting: 1, stopping: 1, queued: 2, suspended: 3,
};
const groupOf = (job) => GROUPS[job.state] ?? 4;
const FILTERS = {
  all: () => true,
  running: (job) => groupOf(job) <= 1,
  queued: (job) => groupOf(job) === 2,
  failed: (job) => job.state === 'failed',
  ended: (job) => groupOf(job) === 4,
};

// What recovers, then what runs, by age; then the queue in its order; then what has ended, the newest first.
function inOrder(a, b) {
  const group = groupOf(a) - groupOf(b);
  if (group) return group;
  if (groupOf(a) === 4) return b.ended - a.ended;
  if (groupOf(a) === 2 && a.priority !== b.priority) return b.priority - a.priority;
  return a.order - b.order;
}

// --- problems ---

function showProblems(problems) {
  const root = byId('problems');
  root.hidden = !problems;
  if (!problems) return;
  const [worst, ...others] = problems.first.map((problem) => el(
      'li', {className: problem.severity},
      problem.job ? el('a', {href: `/jobs/${problem.job}`, className: 'user'}, problem.text) :
                    el('span', {className: 'user'}, problem.text),
      el('code', {}, problem.command)));
  if (!worst) {
    root.replaceChildren(el('p', {className: 'well'}, 'Nothing needs you.'));
    return;
  }
  const left = problems.count - problems.first.length;
  if (left > 0) others.push(el('li', {className: 'dim'}, `and ${left} more`));
  const open = root.querySelector('details')?.open ?? false;
  const more = others.length === 0 ? null :
      el('details', {open}, el('summary', {}, `${plural(problems.count - 1, 'other problem')}`),
         el('ul', {}, ...others));
  root.replaceChildren(el('ul', {}, worst), ...(more ? [more] : []));
}

// --- sums ---

const tiles = byId('tiles');
const running = new Tile(tiles, 'Running');
const queued = new Tile(tiles, 'Queued');
const failed = new Tile(tiles, 'Failed, last day');
const nodesTile = new Tile(tiles, 'Nodes ready');
const slots = new Tile(tiles, 'Slots in use');
const goodputTile = new Tile(tiles, 'Goodput');

function showSums(cluster) {
  if (!cluster) return;
  setText(byId('cluster'), cluster.name);
  document.title = `${(cluster.jobs.running ?? 0)} running - Muster`;
  const jobs = (state) => cluster.jobs[state] ?? 0;
  const moving = jobs('recovering') + jobs('starting') + jobs('stopping');
  running.show(count(jobs('running')), moving ? `${moving} on the way` : '',
               jobs('recovering') ? 'warn' : 'good');
  queued.show(count(jobs('queued')), jobs('suspended') ? `${jobs('suspended')} suspended` : '',
              'info');
  failed.show(count(jobs('failed')), `${count(jobs('succeeded'))} succeeded`,
              jobs('failed') ? 'bad' : '');
  const all = Object.values(cluster.nodes).reduce((sum, n) => sum + n, 0);
  const ready = cluster.nodes.ready ?? 0;
  const lost = cluster.nodes.lost ? `, ${cluster.nodes.lost} lost` : '';
  nodesTile.show(count(ready), `of ${count(all)}${lost}`, ready < all ? 'warn' : '');
  const gpus = cluster.gpus ? `, ${count(cluster.gpus_used)} of ${count(cluster.gpus)} GPUs` : '';
  slots.show(cluster.slots ? `${Math.round(100 * cluster.used / cluster.slots)} %` : '–',
             `${count(cluster.used)} of ${count(cluster.slots)}${gpus}`);
  goodputTile.show(cluster.goodput || '–', 'of the slots brought steps');
}

// --- jobs ---

let now = 0;

function fillProgress(cell, job) {
  const box = inner(cell, () => el('div', {className: 'steps'},
                                   el('progress', {max: 1, ariaLabel: 'Steps done'}), el('span')));
  const [bar, text] = box.children;
  const known = job.max_steps > 0;
  bar.hidden = !known;
  if (known) bar.value = job.step / job.max_steps;
  const train = job.kind === 'train' ? `step ${whole(job.step)}` : '';
  setText(text, known ? `${whole(job.step)} of ${whole(job.max_steps)}` : train);
}

// A planned start is the latest one.
function untilStart(job) {
  if (groupOf(job) !== 2 || !job.planned_start) return '–';
  return `starts in ${duration(Math.max(0, (job.planned_start - now) / 1000))}`;
}

const jobs = new Table(byId('jobs'), [
  {title: 'Job', name: 'main', fill: (cell, job) => {
    const link = inner(cell, () => el('a', {className: 'user'}));
    link.href = `/jobs/${job.id}`;
    setText(link, job.name || job.id);
    link.title = job.id;
  }},
  {title: 'State', name: 'right-s', fill: (cell, job) => {
    setState(inner(cell, () => el('span')), job.state);
    cell.title = job.reason;
  }},
  {title: 'Progress', name: 'full-s', fill: fillProgress},
  {title: 'Loss', name: 'number', fill: (cell, job) => setText(cell, figure(job.loss))},
  {title: 'Tokens/s', name: 'number hide-s', fill: (cell, job) =>
      setText(cell, count(job.tokens_per_second))},
  {title: 'To go', name: 'number', fill: (cell, job) =>
      setText(cell, groupOf(job) <= 1 ? duration(job.eta_seconds) : untilStart(job))},
  {title: 'Ranks', name: 'number hide-s', fill: (cell, job) => setText(cell, count(job.ranks))},
  {title: 'Restarts', name: 'number hide-s', fill: (cell, job) =>
      setText(cell, job.restarts || '–')},
  {title: 'Age', name: 'number hide-s', fill: (cell, job) => setText(cell, age(job, now))},
], {size: 25, empty: 'No job here. `muster submit FILE` brings one.'});

let filter = 'all';
const buttons = new Map(Object.keys(FILTERS).map((name) => [name, el('button', {
  type: 'button', onclick: () => {
    filter = name;
    jobs.begin();
    showJobs(feed.parts.of('job'));
  }})]));
byId('jobs-filter').append(...buttons.values());

function showJobs(all) {
  const list = [...all.values()];
  for (const [name, button] of buttons) {
    setText(button, `${name} ${count(list.filter(FILTERS[name]).length)}`);
    button.ariaPressed = String(name === filter);
  }
  const words = byId('jobs-search').value.trim().toLowerCase();
  jobs.show(list.filter(FILTERS[filter])
                .filter((job) => job.name.toLowerCase().includes(words) || job.id.startsWith(words))
                .sort(inOrder));
}

// --- queues ---

// A ceiling of 0 is one, and null is none.
const amountText = ({gpus, slots}, shown = (n) => n > 0) =>
  [[gpus, 'GPU'], [slots, 'slot']].filter(([n]) => shown(n))
      .map(([n, one]) => plural(n, one)).join(', ') || '–';
const percent = (part) => `${Math.round(100 * part)} %`;

const queuesTable = new Table(byId('queues'), [
  {title: 'Queue', name: 'main user', fill: (cell, queue) => {
    setText(cell, queue.name);
    cell.style.paddingLeft = `${queue.depth}em`;
  }},
  {title: 'Used', name: 'number', fill: (cell, queue) => setText(cell, amountText(queue.used))},
  {title: 'Guarantee', name: 'number hide-s', fill: (cell, queue) =>
      setText(cell, amountText(queue.guarantee))},
  {title: 'Ceiling', name: 'number hide-s', fill: (cell, queue) =>
      setText(cell, amountText(queue.ceiling, (n) => n !== null))},
  {title: 'Share', name: 'number hide-s', fill: (cell, queue) =>
      setText(cell, percent(queue.share))},
  {title: 'Had', name: 'number hide-s', fill: (cell, queue) => setText(cell, percent(queue.had))},
  {title: 'Running', name: 'number', fill: (cell, queue) => setText(cell, count(queue.running))},
  {title: 'Waiting', name: 'number', fill: (cell, queue) => setText(cell, count(queue.waiting))},
], {size: 10, empty: ''});

function showQueues(queues) {
  byId('queues-card').hidden = !queues;
  if (queues) queuesTable.show(queues);
}

// --- nodes ---

const squares = new Map();

// n2 before n10; a Collator takes longer for a thousand names than all the rest.
const keys = new Map();
function keyOf(name) {
  if (!keys.has(name)) keys.set(name, name.replace(/\d+/g, (digits) => digits.padStart(12, '0')));
  return keys.get(name);
}
const byName = (a, b) => keyOf(a) < keyOf(b) ? -1 : 1;

function useOf(node) {
  if (toneOf(node.state) !== 'good') return '';
  return node.used === 0 ? 'free' : node.used < node.slots ? 'part' : 'full';
}

// One square for each node, in the order of their names.
function showFleet(nodes, changed) {
  const root = byId('fleet');
  let added = false;
  for (const name of changed) {
    const node = nodes.get(name);
    let square = squares.get(name);
    if (!node) {
      square?.remove();
      squares.delete(name);
      continue;
    }
    if (!square) {
      square = document.createElement('i');
      squares.set(name, square);
      added = true;
    }
    setClass(square, `${toneOf(node.state)} ${useOf(node)}`);
    const gpus = node.gpus ? `, ${node.gpus_used} of ${node.gpus} GPUs` : '';
    square.title = `${name}: ${node.state}, ${node.used} of ${node.slots} slots${gpus}`;
  }
  setClass(root, nodes.size > 300 ? 'fleet many' : 'fleet');
  if (added) root.replaceChildren(...[...squares.keys()].sort(byName).map((n) => squares.get(n)));
  root.ariaLabel = `${plural(nodes.size, 'node')}; the table below has those that need a look first`;
}

const rankOf = (node) => ({bad: 0, warn: 1, info: 2, idle: 3})[toneOf(node.state)] ??
    (node.notices.length ? 1 : 4);

const nodesTable = new Table(byId('nodes'), [
  {title: 'Node', name: 'main user', fill: (cell, node) => setText(cell, node.name)},
  {title: 'State', name: 'right-s', fill: (cell, node) =>
      setState(inner(cell, () => el('span')), node.state)},
  {title: 'Slots', name: 'number', fill: (cell, node) =>
      setText(cell, `${node.used}/${node.slots}`)},
  {title: 'GPUs', name: 'number hide-s', fill: (cell, node) =>
      setText(cell, node.gpus ? `${node.gpus_used}/${node.gpus}` : '–')},
  {title: 'What it says', name: 'text user full-s', fill: (cell, node) =>
      setText(cell, [node.reason, ...node.notices].filter(Boolean).join('; '))},
], {size: 10, empty: 'No node is here. `muster nodes` says more.'});

function showNodes(nodes) {
  const words = byId('nodes-search').value.trim().toLowerCase();
  const list = [...nodes.values()].filter((node) => node.name.toLowerCase().includes(words));
  nodesTable.show(list.sort((a, b) => rankOf(a) - rankOf(b) || byName(a.name, b.name)));
}

// --- all of it ---

const events = new EventList(byId('events'), true);

const feed = new Feed('/api/v1/events', (parts, changed, time) => {
  now = time;
  if (changed.has('problems')) showProblems(parts.one('problems'));
  if (changed.has('cluster')) showSums(parts.one('cluster'));
  if (changed.has('queues')) showQueues(parts.one('queues'));
  if (changed.has('job')) showJobs(parts.of('job'));
  if (changed.has('node')) {
    showFleet(parts.of('node'), changed.get('node'));
    showNodes(parts.of('node'));
  }
  if (changed.has('event')) events.show(parts.of('event'), parts.of('job'));
});
byId('jobs-search').addEventListener('input', () => {
  jobs.begin();
  showJobs(feed.parts.of('job'));
});
byId('nodes-search').addEventListener('input', () => {
  nodesTable.begin();
  showNodes(feed.parts.of('node'));
});
feed.start();
