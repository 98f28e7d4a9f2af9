// One job: how far it is, its curves, what happened to it, its ranks and their logs.
import {Chart} from '/assets/chart.js';
import {
  age, ask, byId, bytes, clock, count, duration, el, EventList, Feed, figure, inner, percent, plural,
  setState, setText, Table, Tile, toneOf, when, whole,
} from '/assets/page.js';

const OVER = new Set(['succeeded', 'failed', 'cancelled']);
const wanted = decodeURIComponent(location.pathname.replace(/^\/jobs\//, ''));

// --- head ---

const tiles = byId('tiles');
const lossTile = new Tile(tiles, 'Loss');
const timeTile = new Tile(tiles, 'Step time, median');
const tokensTile = new Tile(tiles, 'Tokens/s');
const goTile = new Tile(tiles, 'To go');
const memoryTile = new Tile(tiles, 'Memory');
const ranksTile = new Tile(tiles, 'Ranks');
const restartsTile = new Tile(tiles, 'Restarts');
const savedTile = new Tile(tiles, 'Saved at step');
const expertsTile = new Tile(tiles, 'Busiest expert');
expertsTile.element.hidden = true;

function showHead(job, now) {
  byId('head').hidden = false;
  document.title = `${job.name || job.id} - ${job.state} - Muster`;
  setText(byId('name'), job.name || job.id);
  setText(byId('id'), job.id);
  setState(byId('state'), job.state);
  setText(byId('reason'), job.reason);
  byId('reason').hidden = !job.reason;
  byId('progress-line').hidden = job.max_steps === 0 && job.step === 0;
  byId('progress').hidden = job.max_steps === 0;
  const done = job.max_steps ? job.step / job.max_steps : 0;
  byId('progress').value = done;
  setText(byId('progress-text'), job.max_steps ?
      `step ${whole(job.step)} of ${whole(job.max_steps)}, ${Math.floor(100 * done)} %` :
      `step ${whole(job.step)}`);
  lossTile.show(figure(job.loss), job.loss_at_start ? `from ${figure(job.loss_at_start)}` : '',
                typeof job.loss === 'string' ? 'bad' : '');
  tokensTile.show(count(job.tokens_per_second));
  const over = OVER.has(job.state);
  goTile.show(over ? '–' : duration(job.eta_seconds),
              job.started ? `${over ? 'ran' : 'runs for'} ${age(job, now)}` : '');
  memoryTile.show(bytes(job.memory_bytes), !job.memory_bytes ? '' : job.device_bytes ?
      `largest rank, GPUs of ${bytes(job.device_bytes)}` : 'of the largest rank');
  ranksTile.show(count(job.ranks), job.nodes ? `on ${plural(job.nodes, 'node')}` : '');
  restartsTile.show(count(job.restarts), '', job.restarts ? 'warn' : '');
  savedTile.show(whole(job.committed_step));
  expertsTile.element.hidden = !job.routers;
  if (job.routers) showExperts(job.routers);
}

// How the routers have spread the newest step's tokens.
function showExperts({largest_share, smallest_share, entropy, idle}) {
  expertsTile.show(percent(largest_share), `of its layer, least ${percent(smallest_share)}, entropy ${
      entropy.toFixed(2)}${idle ? `, ${whole(idle)} idle` : ''}`, idle ? 'warn' : '');
}

function showTimes(times) {
  const recent = times?.recent;
  timeTile.show(duration(recent?.p50), recent ?
      `p95 ${duration(recent.p95)}, p99 ${duration(recent.p99)}` : '');
}

// --- a line of parts, each as wide as it is long: {name, seconds, tone} ---

function bar(parts) {
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  return parts.filter((part) => part.seconds > 0).map((part) => {
    const share = el('span', {className: `stage ${part.tone}`,
                              title: `${part.name}: ${duration(part.seconds)}`},
                     `${part.name} ${duration(part.seconds)}`);
    share.style.flexGrow = String(Math.max(part.seconds / (total || 1), 0.04));
    return share;
  });
}

const STATE_TONES = {step: 'good', recompute: 'warn', checkpoint: 'info', recovery: 'warn',
                     hang: 'bad', queue: 'idle', idle: 'idle'};

function showGoodput(goodput) {
  const spent = goodput?.states.some((entry) => entry.seconds > 0);
  byId('goodput').hidden = !spent;
  if (!spent) return;
  setText(byId('goodput-ratio'),
          goodput.ratio === null ? '' : `${percent(goodput.ratio)} of its slots' time brought steps`);
  byId('goodput-bar').replaceChildren(
      ...bar(goodput.states.map(({state, seconds}) =>
          ({name: state, seconds, tone: STATE_TONES[state]}))));
}

// --- curves ---

const short = (format) => (value, tick) => tick && value === 0 ? '0' : format(value);
const lossOf = (value, tick) => tick ? String(Number(value.toPrecision(4))) : figure(value);
const charts = [
  [byId('loss-chart'), {title: 'Loss', curve: 0, format: lossOf, height: 220}],
  [byId('time-chart'), {title: 'Step time', curve: 1, format: short(duration), fromZero: true,
                        height: 130}],
  [byId('memory-chart'), {title: 'Memory, largest rank', curve: 2, format: short(bytes),
                          fromZero: true, base: 1024, height: 130}],
  [byId('tokens-chart'), {title: 'Tokens/s', curve: 3, format: short(count), fromZero: true,
                          height: 130}],
].map(([root, options]) => new Chart(root, options));

function showCurves(cells, attempts) {
  byId('charts').hidden = cells.size === 0;
  const list = [...cells.entries()].sort((a, b) => a[0] - b[0]).map(([, cell]) => cell);
  const marks = [...attempts.values()]
                    .filter((attempt) => attempt.cause && attempt.cause_kind !== 'finished' &&
                            attempt.last_step > 0)
                    .map((attempt) => ({step: attempt.last_step,
                                        text: `attempt ${attempt.generation}: ${attempt.cause}`}));
  for (const chart of charts) chart.show(list, marks);
}

// --- timeline ---

const TIERS = {
  in_place: 'The living ranks kept their processes and the gang formed again in place.',
  respawn: 'All ranks restarted on the same nodes.',
  spare: 'Another node took the place of the one that went away.',
  shrink: 'The job went on with fewer ranks.',
  grow: 'The job went on with more ranks.',
  requeue: 'The job waited in the queue for enough nodes.',
};
const STAGES = [['detect', 'detected', 'bad'], ['abort', 'called out', 'warn'],
                ['reform', 're-formed', 'info'], ['load', 'loaded', 'idle'],
                ['first_step', 'first step', 'good']];

function stagesOf(seconds) {
  return STAGES.filter(([key]) => seconds[key] !== null)
      .map(([key, name, tone]) => ({name, tone, seconds: seconds[key]}));
}

// From the fault to training again; null while that is not known.
function recoverySeconds(seconds) {
  return STAGES.some(([key]) => seconds[key] === null) ? null :
      STAGES.reduce((sum, [key]) => sum + seconds[key], 0);
}

function beginning(attempt) {
  if (attempt.resumed_step > 0)
    return `Resumed from the ${attempt.resumed_from || 'checkpoint'} of step ${attempt.resumed_step}.`;
  return attempt.resumed_step === 0 ? 'Began at step 0.' : '';
}

function ending(attempt) {
  if (!attempt.ended) return [el('p', {className: 'dim'}, `Still ${attempt.state}.`)];
  if (attempt.cause_kind === 'finished')
    return [el('p', {}, `Ended with success${
        attempt.last_step ? ` after step ${attempt.last_step}` : ''}.`)];
  const who = attempt.failed_node ?
      ` rank ${attempt.failed_rank} on ${attempt.failed_node}` : '';
  const card = attempt.card;
  const place = card.phase ? `after finished step ${card.step}, in ${card.phase}` +
      (card.last_collective ? `, last collective ${card.last_collective}` : '') : '';
  const facts = [card.what, place, ...card.facts].filter(Boolean);
  return [
    el('p', {className: attempt.failed ? 'cause user' : 'user'}, attempt.cause),
    el('p', {className: 'dim user'}, [attempt.cause_kind.replaceAll('_', ' ') + who, ...facts]
        .filter(Boolean).join('; ')),
    card.advice ? el('p', {className: 'advice user'}, card.advice) : null,
    attempt.log_tail.length === 0 ? null :
        el('details', {}, el('summary', {}, 'Last lines of its log'),
           el('pre', {className: 'log user'}, attempt.log_tail.join('\n'))),
  ];
}

// What brought an attempt up, unless it is the first.
function recovery(attempt, before) {
  if (!before) return [];
  const total = recoverySeconds(attempt.seconds);
  const again = before.lost_steps > 0 ? `${plural(before.lost_steps, 'finished step')} done again.` :
      attempt.resumed_step >= 0 ? 'No finished step was done again.' : '';
  const words = [TIERS[attempt.tier] ?? '',
                 total === null ? '' : `Training again ${duration(total)} after the fault.`, again];
  const stages = stagesOf(attempt.seconds);
  return [el('p', {}, words.filter(Boolean).join(' ')),
          stages.length ? el('div', {className: 'stages'}, ...bar(stages)) : null];
}

function timelineItem(attempt, before) {
  const nodes = attempt.nodes.join(', ') +
      (attempt.node_count > attempt.nodes.length ? ` and ${
          attempt.node_count - attempt.nodes.length} more` : '');
  const tone = !attempt.ended ? 'live' : attempt.failed ? 'bad' :
      attempt.cause_kind === 'finished' ? 'good' : '';
  return el('li', {className: tone},
            el('h3', {}, `Attempt ${attempt.generation}`, el('small', {className: 'dim'},
               `${clock(attempt.started)} to ${attempt.ended ? clock(attempt.ended) : 'now'}`)),
            ...recovery(attempt, before),
            el('p', {className: 'dim user'},
               [beginning(attempt), attempt.ranks ? `${plural(attempt.ranks, 'rank')} on ${nodes}.` : '']
                   .filter(Boolean).join(' ')),
            ...attempt.notes.map((note) => el('p', {className: 'dim user'}, note)),
            ...ending(attempt));
}

// An item is made again only when its attempt, or the one before it, has changed: what somebody has
// opened or selected stays.
const timelineItems = new Map();

function showTimeline(attempts, changed) {
  const numbers = [...attempts.keys()].map(Number).sort((a, b) => a - b);
  for (const [number, item] of timelineItems) {
    if (attempts.has(String(number))) continue;
    item.remove();
    timelineItems.delete(number);
  }
  numbers.forEach((number, i) => {
    const before = i > 0 ? numbers[i - 1] : 0;
    const known = timelineItems.get(number);
    if (known && !changed.has(String(number)) && !changed.has(String(before))) return;
    const item = timelineItem(attempts.get(String(number)), attempts.get(String(before)));
    timelineItems.set(number, item);
    if (known) known.replaceWith(item);
    else byId('timeline').prepend(item);
  });
  setText(byId('timeline-sum'), plural(numbers.length, 'attempt'));
  showAttemptChoice(numbers);
}

// --- ranks ---

const exitOf = (rank) => rank.signal ? `signal ${rank.signal}` : `exited ${rank.exit_code}`;
const hasFinished = (rank) => rank.state === 'exited' && !rank.signal && rank.exit_code === 0;
let largest = 0;

const ranksTable = new Table(byId('ranks'), [
  {title: 'Rank', name: 'number main', fill: (cell, rank) => {
    const link = inner(cell, () => el('a', {href: '#log-title'}));
    setText(link, rank.rank);
    link.onclick = () => chooseRank(rank.rank);
  }},
  {title: 'Node', name: 'user', fill: (cell, rank) => setText(cell, rank.node)},
  {title: 'State', name: 'right-s', fill: (cell, rank) => {
    const state = inner(cell, () => el('span'));
    setState(state, rank.state === 'exited' ? exitOf(rank) : rank.state,
             hasFinished(rank) ? 'good' : toneOf(rank.state));
  }},
  {title: 'Step', name: 'number', fill: (cell, rank) => setText(cell, rank.step ?? '–')},
  {title: 'Phase', name: 'user', fill: (cell, rank) => setText(cell, rank.phase || '–')},
  {title: 'Own work', name: 'number', fill: (cell, rank) =>
      setText(cell, duration(rank.busy_seconds))},
  {title: 'Memory', name: 'number', fill: (cell, rank) => {
    const box = inner(cell, () => el('div', {className: 'steps'}, el('progress', {max: 1}), el('span')));
    const whole = rank.device_bytes || largest;
    box.children[0].value = whole ? (rank.memory_bytes ?? 0) / whole : 0;
    setText(box.children[1], bytes(rank.memory_bytes));
  }},
], {size: 16, empty: 'No rank yet.'});

// A node reports its ranks once a second: fast steps may be seconds apart and say nothing.
const BEHIND_SECONDS = 2;

// Those that need a look first: not running, then behind, then the one that the others wait for.
function showRanks(ranks, slowRank, stepSeconds) {
  const list = [...ranks.values()];
  largest = Math.max(0, ...list.map((rank) => rank.memory_bytes ?? 0));
  const newest = Math.max(0, ...list.map((rank) => rank.step ?? 0));
  const isBehind = (rank) => (newest - (rank.step ?? 0) - 1) * (stepSeconds ?? 0) > BEHIND_SECONDS;
  const key = (rank) => hasFinished(rank) ? 4 : rank.state !== 'running' ? 0 :
      isBehind(rank) ? 1 : rank.rank === slowRank ? 2 : 3;
  ranksTable.show(list.sort((a, b) => key(a) - key(b) || a.rank - b.rank));
  byId('log-rank').max = String(Math.max(0, list.length - 1));
}

// --- checkpoints ---

const checkpoints = new Table(byId('checkpoints'), [
  {title: 'Step', name: 'number main', fill: (cell, row) => setText(cell, whole(row.step))},
  {title: 'Written', name: '', fill: (cell, row) => {
    setText(cell, clock(row.committed));
    cell.title = when(row.committed);
  }},
  {title: 'Size', name: 'number', fill: (cell, row) => setText(cell, bytes(row.bytes))},
  {title: 'Evaluation', name: 'number', fill: (cell, row) => setText(cell, figure(row.eval_loss))},
  {title: 'Read again', name: 'text user', fill: (cell, row) =>
      setText(cell, row.refused || (row.verified ? clock(row.verified) : 'not yet'))},
], {size: 8, empty: 'None committed yet.'});

// --- log ---

const POLL_MS = 1000;
const REFUSED_MS = 4000;
const MAX_LOG = 256 * 1024;  // characters that are kept
const log = {offset: null, text: '', asked: 0, abort: null, timer: 0};

// Colours and the like of a terminal, and what overwrites a line.
function plain(text) {
  return text.replace(/\x1b\[[0-9;?]*[ -\/]*[@-~]/g, '').replace(/\r\n?/g, '\n')
      .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '');
}

function showAttemptChoice(numbers) {
  const select = byId('log-attempt');
  if (select.options.length === numbers.length + 1) return;
  const chosen = select.value;
  select.replaceChildren(
      el('option', {value: '0'}, 'newest'),
      ...[...numbers].reverse().map((n) => el('option', {value: String(n)}, String(n))));
  select.value = chosen;
  if (select.value !== chosen) select.value = '0';
}

function chooseRank(rank) {
  byId('log-rank').value = String(rank);
  beginLog();
}

function beginLog() {
  log.abort?.abort();
  clearTimeout(log.timer);
  log.offset = null;
  log.text = '';
  log.asked += 1;
  setText(byId('log'), '');
  readLog(log.asked);
}

function appendLog(text) {
  const shown = byId('log');
  const atEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 30;
  log.text += plain(text);
  if (log.text.length > MAX_LOG) {
    log.text = log.text.slice(log.text.indexOf('\n', log.text.length - MAX_LOG) + 1);
    setText(shown, log.text);
  } else if (text) {
    shown.append(plain(text));
  }
  if (atEnd && byId('log-follow').checked) shown.scrollTop = shown.scrollHeight;
}

// What there is, and again while more may come. A node that is busy answers in seconds.
async function readLog(number) {
  const query = new URLSearchParams({
    job: feed.parts.one('job')?.id ?? wanted, rank: byId('log-rank').value || '0',
    generation: byId('log-attempt').value});
  if (log.offset !== null) query.set('offset', String(log.offset));
  log.abort = new AbortController();
  let again = POLL_MS;
  try {
    const response = await ask(`/api/v1/log?${query}`, log.abort.signal);
    if (number !== log.asked) return;
    if (!response.ok) {
      setText(byId('log-state'), (await response.text()).trim());
      again = REFUSED_MS;
    } else {
      const piece = await response.json();
      if (number !== log.asked) return;
      log.offset = piece.next_offset;
      appendLog(piece.text);
      setText(byId('log-state'), piece.path + (piece.final && piece.at_end ? ', complete' : ''));
      if (!piece.at_end) again = 0;
      if (piece.final && piece.at_end) return;
    }
  } catch {
    // It is asked again.
  }
  if (number === log.asked) log.timer = setTimeout(() => pollLog(number), again);
}

function pollLog(number) {
  if (number !== log.asked) return;
  if (document.hidden || !byId('log-follow').checked) {
    log.timer = setTimeout(() => pollLog(number), POLL_MS);
    return;
  }
  readLog(number);
}

byId('log-rank').addEventListener('change', beginLog);
byId('log-attempt').addEventListener('change', beginLog);

// --- all of it ---

const events = new EventList(byId('events'), false);
let generation = 0;

const feed = new Feed(`/api/v1/events?job=${encodeURIComponent(wanted)}`, (parts, changed, now) => {
  const job = parts.one('job');
  if (changed.has('job') && job) showHead(job, now);
  if (changed.has('times')) showTimes(parts.one('times'));
  if (changed.has('goodput')) showGoodput(parts.one('goodput'));
  if (changed.has('cell') || changed.has('attempt')) showCurves(parts.of('cell'), parts.of('attempt'));
  if (changed.has('attempt')) showTimeline(parts.of('attempt'), changed.get('attempt'));
  if (changed.has('rank')) showRanks(parts.of('rank'), job?.slow_rank, job?.step_seconds);
  if (changed.has('checkpoints')) checkpoints.show(parts.one('checkpoints') ?? []);
  if (changed.has('event')) events.show(parts.of('event'));
  if (changed.has('spec')) setText(byId('spec-text'), parts.one('spec'));
  // The log of an attempt that is over was of the newest until now.
  if (job && job.generation !== generation && byId('log-attempt').value === '0') beginLog();
  if (job) generation = job.generation;
});
feed.start();
