// A curve over steps: the last value of each cell as a line, least to greatest as a band, and marks
// at steps where something happened. SVG, drawn anew when its cells or its width change.
import {el, setText} from '/assets/page.js';

const SVG = 'http://www.w3.org/2000/svg';
const LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 22;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// About `count` round numbers between two; `base` 1024: round in KiB, MiB, ...
function ticks(least, greatest, count, base = 1) {
  if (base > 1) {
    const unit = base ** Math.floor(Math.log(Math.max(greatest, 1)) / Math.log(base));
    return ticks(least / unit, greatest / unit, count).map((value) => value * unit);
  }
  const raw = (greatest - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const out = [];
  for (let at = Math.ceil(least / step) * step; at <= greatest + step * 1e-9; at += step)
    out.push(at);
  return out;
}

export class Chart {
  #options;
  #plot;
  #readout = el('span', {className: 'readout'});
  #cells = [];
  #marks = [];
  #at = null;  // index of the cell under the pointer
  #shown = {};

  // options: {title, curve: its place in a cell, format, fromZero, base: of its units, height}
  constructor(root, options) {
    this.#options = options;
    this.#plot = el('div', {className: 'plot'});
    this.#plot.style.height = `${options.height}px`;
    root.append(el('div', {className: 'card-head'}, el('h2', {}, options.title), this.#readout),
                this.#plot);
    new ResizeObserver(() => this.#draw()).observe(this.#plot);
    this.#plot.addEventListener('pointermove', (event) => this.#point(event));
    this.#plot.addEventListener('pointerleave', () => this.#point(null));
  }

  // cells: [[first, last, [least, greatest, last] or null, ...], ...]; marks: [{step, text}, ...].
  show(cells, marks) {
    const place = 2 + this.#options.curve;
    this.#cells = cells.filter((cell) => cell[place]).map((cell) => {
      const [least, greatest, last] = cell[place];
      return {step: cell[1], least, greatest, last};
    });
    this.#marks = marks;
    this.#draw();
  }

  #scales() {
    const cells = this.#cells;
    const first = cells[0].step, last = cells[cells.length - 1].step;
    let least = Math.min(...cells.map((cell) => cell.least));
    let greatest = Math.max(...cells.map((cell) => cell.greatest));
    if (this.#options.fromZero) least = Math.min(0, least);
    const room = (greatest - least) * 0.05 || Math.abs(greatest) * 0.1 || 1;
    greatest += room;
    if (!this.#options.fromZero) least -= room;
    const width = this.#plot.clientWidth, height = this.#options.height;
    const x = (step) => LEFT + (width - LEFT - RIGHT) * (last > first ? (step - first) / (last - first) : 0.5);
    const y = (value) => TOP + (height - TOP - BOTTOM) * (greatest - value) / (greatest - least);
    return {x, y, first, last, least, greatest, width, height};
  }

  #draw() {
    if (this.#plot.clientWidth === 0) return;
    if (this.#cells.length === 0) {
      this.#plot.replaceChildren(el('p', {className: 'dim empty'}, 'no step yet'));
      setText(this.#readout, '');
      return;
    }
    const scale = this.#shown = this.#scales();
    const {title, format} = this.#options;
    const newest = this.#cells[this.#cells.length - 1];
    const picture = svg('svg', {
      width: scale.width, height: scale.height, role: 'img',
      'aria-label': `${title}: ${format(newest.last)} at step ${newest.step}`});
    this.#drawAxes(picture, scale);
    this.#drawMarks(picture, scale);
    this.#drawCurve(picture, scale);
    this.#plot.replaceChildren(picture);
    this.#drawPoint();
  }

  #drawAxes(picture, {x, y, first, last, least, greatest, width, height}) {
    for (const value of ticks(least, greatest, 4, this.#options.base)) {
      if (y(value) > height - BOTTOM + 1) continue;
      picture.append(
          svg('line', {class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}),
          svg('text', {class: 'tick', x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end'},
              this.#options.format(value, true)));
    }
    const steps = ticks(first, last, Math.max(2, Math.floor(width / 110)))
                      .filter((step) => Number.isInteger(step));
    for (const step of last > first ? steps : [first]) {
      const anchor = x(step) > width - 40 ? 'end' : 'middle';
      picture.append(svg('text', {class: 'tick', x: Math.min(x(step), width - RIGHT),
                                  y: height - 6, 'text-anchor': anchor},
                         step.toLocaleString('en')));
    }
  }

  #drawMarks(picture, {x, first, last, height}) {
    for (const mark of this.#marks) {
      if (mark.step < first || mark.step > last) continue;
      const line = svg('line', {class: 'mark', x1: x(mark.step), x2: x(mark.step), y1: TOP,
                                y2: height - BOTTOM});
      line.append(svg('title', {}, mark.text));
      picture.append(line);
    }
  }

  #drawCurve(picture, {x, y}) {
    const at = (step, value) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
    const cells = this.#cells;
    const above = cells.map((cell) => at(cell.step, cell.greatest));
    const below = cells.map((cell) => at(cell.step, cell.least)).reverse();
    const newest = cells[cells.length - 1];
    picture.append(
        svg('path', {class: 'band', d: `M${above.join('L')}L${below.join('L')}Z`}),
        svg('path', {class: 'line',
                     d: `M${cells.map((cell) => at(cell.step, cell.last)).join('L')}`}),
        svg('circle', {class: 'newest', cx: x(newest.step), cy: y(newest.last), r: 3}));
  }

  #point(event) {
    if (this.#cells.length === 0 || !this.#shown.x) return;
    this.#at = null;
    if (event) {
      const at = event.clientX - this.#plot.getBoundingClientRect().left;
      let nearest = Infinity;
      this.#cells.forEach((cell, i) => {
        const away = Math.abs(this.#shown.x(cell.step) - at);
        if (away < nearest) [nearest, this.#at] = [away, i];
      });
    }
    this.#drawPoint();
  }

  #drawPoint() {
    const picture = this.#plot.firstElementChild;
    picture.querySelector('.pointer')?.remove();
    const {format} = this.#options;
    const cell = this.#cells[this.#at ?? this.#cells.length - 1] ?? this.#cells.at(-1);
    const wide = cell.greatest > cell.least ? ` (${format(cell.least)} to ${format(cell.greatest)})`
                                            : '';
    setText(this.#readout, this.#at === null ?
        format(cell.last) : `${format(cell.last)}${wide} at step ${cell.step.toLocaleString('en')}`);
    if (this.#at === null) return;
    const {x, height} = this.#shown;
    picture.append(svg('line', {class: 'pointer', x1: x(cell.step), x2: x(cell.step), y1: TOP,
                                y2: height - BOTTOM}));
  }
}
